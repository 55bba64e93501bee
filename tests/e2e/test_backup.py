"""A backup is taken while the instance runs, and put back while it does not."""

from pathlib import Path

from tests.e2e.conftest import Instance, tiny_vm


def test_objects_come_back(instance: Instance, tmp_path: Path) -> None:
    copy = tmp_path / "objects.backup"
    instance.apply(tiny_vm("kept", "Halted"))
    instance.cli("backup", str(copy))
    assert "exists" in instance.cli("backup", str(copy), check=False)
    instance.kubectl("delete", "vm", "kept")
    assert "down" in instance.cli("restore", str(copy), check=False)
    instance.cli("down")
    instance.cli("restore", str(copy))
    instance.up()
    assert instance.get("vm", "kept") is not None
    instance.cli("start", "kept", "--wait")
    assert instance.counter("kept") > 0


def test_what_is_no_backup_is_refused_and_changes_nothing(instance: Instance, tmp_path: Path) -> None:
    instance.apply(tiny_vm("kept", "Halted"))
    instance.cli("down")
    (tmp_path / "no.backup").write_bytes(b"no database" * 100)
    assert "not a database" in instance.cli("restore", str(tmp_path / "no.backup"), check=False)
    instance.up()
    assert instance.get("vm", "kept") is not None

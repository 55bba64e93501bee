"""A full disk: said in one sentence where it happens, harmless to what runs, and over when there is room again."""

import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Instance, disk_vm, end, eventually, make_instance, tiny_vm

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")


@contextmanager
def small(place: Path, mebibytes: int) -> Generator[None]:
    """A file system of a few MiB at `place`, with what was there."""
    place.mkdir(parents=True, exist_ok=True)
    kept = place.with_name(f"{place.name}.kept")
    subprocess.run(["cp", "-a", str(place), str(kept)], check=True)
    options = f"size={mebibytes}m,mode=0711"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        subprocess.run(["cp", "-a", f"{kept}/.", str(place)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        subprocess.run(["rm", "-rf", str(kept)], check=True)


def fill(place: Path) -> Path:
    """Write until nothing fits."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\1" * 4096)
        except OSError:
            return filler


def test_an_import_that_does_not_fit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    instance = make_instance()
    big = tmp_path / "big.raw"
    big.write_bytes(os.urandom(12 << 20))
    with small(instance.data_dir / "images", 8):
        answer = instance.cli("image", "import", str(big), "--name", "big", check=False)
        assert "No space left on device" in answer
        assert "big" not in instance.cli("image", "list")
        assert not list((instance.data_dir / "images").rglob(".incoming-*"))


def test_a_machine_waits_for_room_on_its_node() -> None:
    instance = make_instance()
    nodes = instance.data_dir / "nodes"
    with small(nodes, 8):
        instance.up()
        instance.apply(tiny_vm("before"))
        instance.wait_phase("before")
        before = instance.counter("before")
        filler = fill(nodes)
        instance.apply(disk_vm("late"))
        eventually(
            lambda: "No space left on device" in instance.cli("why", "late", check=False),
            40,
            lambda: instance.story("late"),
        )
        assert instance.counter("before") > before
        filler.unlink()
        instance.wait_phase("late")
        assert instance.counter("late") > 0
        waits_with_its_guest(instance, nodes, "late")
        assert instance.counter("before") > before
        end_machines(instance)
    end(instance)


def waits_with_its_guest(instance: Instance, place: Path, name: str) -> None:
    """A guest that writes to a disk without room is paused, its object says why, and it goes on when there is room."""
    filler = fill(place)
    instance.cli("console", name, "--seconds", "1", stdin="wX", check=False)
    eventually(lambda: "the storage is full" in paused(instance, name), 60, lambda: instance.story(name))
    assert paused(instance, name).startswith("PausedIOError")
    eventually(lambda: (instance.get("vm", name) or {})["status"]["printableStatus"] == "Paused", 60)
    assert "the storage is full" in instance.cli("why", name, check=False)
    filler.unlink()
    eventually(lambda: paused(instance, name) == "", 120, lambda: instance.story(name))
    eventually(lambda: "written" in instance.console(name), 60, lambda: instance.story(name))


def paused(instance: Instance, name: str) -> str:
    """Reason and message of the VMI's condition Paused; empty when the guest runs."""
    conditions: list[dict[str, str]] = (instance.get("vmi", name) or {})["status"].get("conditions", [])
    return next((f"{one['reason']} {one['message']}" for one in conditions if one["type"] == "Paused"), "")


def test_a_full_store_of_the_api_server_refuses_writes_and_recovers() -> None:
    instance = make_instance()
    instance.up()
    instance.cli("down")
    control = instance.data_dir / "control"
    with small(control, 24):
        instance.up()
        instance.apply(tiny_vm("before"))
        instance.wait_phase("before")
        before = instance.counter("before")
        filler = fill(control)
        answer = ""
        for number in range(400):
            labels = {"metadata": {"labels": {f"filler-{number}": "x" * 60}}}
            answer = instance.kubectl("patch", "vm", "before", "--type=merge", "-p", json.dumps(labels), check=False)
            if "patched" not in answer:
                break
        assert "full" in answer or "disk" in answer
        assert instance.counter("before") > before
        filler.unlink()
        eventually(
            lambda: "labeled" in instance.kubectl("label", "vm", "before", "a=b", "--overwrite", check=False), 60
        )
        assert instance.counter("before") > before
        end_machines(instance)
    end(instance)


def end_machines(instance: Instance) -> None:
    """Stop everything while the small file system is still there."""
    instance.cli("down", "--stop-vms", "--timeout", "60")

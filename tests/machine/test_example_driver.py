"""The example driver in Go, built from the proto files and its own source, boots a real guest on User-mode Linux."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from anyvisor.hri import conformance, manifests
from anyvisor.hri.conformance import Files, Options, Outcome
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.planning.manifest import parse
from anyvisor.planning.registry import registry
from tests import guests

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "drivers" / "uml"
PROTO = ROOT / "src" / "anyvisor" / "hri" / "proto"
BUILD_SECONDS = 1200
"""Cold, on two cores that others use too."""
BOOTS = ("run.boot", "run.pause", "run.shutdown", "run.adopt")
"""Of level 1: each boots a guest."""


@pytest.fixture(scope="module")
def program() -> Path:
    """The driver, built once into a cache outside the tree; skips with the reason where it cannot be."""
    if not Path("/usr/bin/linux.uml").exists():
        pytest.skip("User-mode Linux is not installed: apt-get install user-mode-linux")
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("Go is not installed: install it to build the example driver")
    sources = sorted(
        path for path in (*EXAMPLE.glob("*"), *PROTO.rglob("*.proto")) if path.suffix != "" and path.is_file()
    )
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    cache = Path(os.environ.get("ANYVISOR_CACHE") or Path.home() / ".cache" / "anyvisor")
    place = cache / "examples" / digest
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "uml-driver").exists():
            _build(place, Path(go).parent)
    return place / "uml-driver"


def _build(place: Path, go: Path) -> None:
    for path in EXAMPLE.iterdir():
        if path.is_file() and path.name != "uml-driver":
            shutil.copy(path, place)
    environment = {**os.environ, "PATH": f"{go}:{os.environ['PATH']}", "GOFLAGS": "-buildvcs=false"}
    fetched = _run(["go", "mod", "download"], place, environment)
    if fetched.returncode:
        pytest.skip(f"the Go modules cannot be fetched: {fetched.stderr[-300:]}")
    made = _run(["nice", "make", f"PYTHON={sys.executable}", f"PROTO={PROTO}"], place, environment)
    assert made.returncode == 0, made.stderr[-3000:]


def _run(words: list[str], place: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS)


def test_its_manifest_is_right():
    manifest = parse(manifests.read((EXAMPLE / "manifest.json").read_text()), registry())
    assert manifest.driver == "uml.example.org"


@pytest.mark.timeout(1800)
async def test_it_keeps_the_contract_and_boots_a_guest(rundir: Path, program: Path):
    raw = manifests.read((EXAMPLE / "manifest.json").read_text())
    guest = guests.linux_guest()
    heard: list[str] = []
    options = Options(
        hri_socket=str(rundir / "hri"),
        fd_socket=str(rundir / "fd"),
        level=1,
        machine=ParseDict(json.loads((EXAMPLE / "machine.json").read_text()), Machine()),
        manifest=parse(raw, registry()),
        manifest_digest=manifests.digest(raw),
        talking=Files(None, str(guest.initrd), "console=ttyS0 quiet"),
        driver_command=f"{program} --hri {{hri}} --fd {{fd}}",
        skip=("run.start-paused", "run.force", "run.destroy", "run.killed"),
    )
    report = await conformance.run(
        options, lambda result: heard.append(f"{result.id}: {result.outcome} {result.message}")
    )
    assert [(result.id, result.message) for result in report.failed] == []
    passed = {result.id for result in report.results if result.outcome == Outcome.PASSED}
    assert passed >= set(BOOTS), heard
    assert len(passed) >= 30, heard

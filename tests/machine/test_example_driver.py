"""The example driver in Go conforms; built by `make -C examples/drivers/uml`, which needs Go and its modules."""

import json
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from anyvisor.hri import conformance, manifests
from anyvisor.hri.conformance import Options, Outcome
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.planning.manifest import parse
from anyvisor.planning.registry import registry

EXAMPLE = Path(__file__).parents[2] / "examples" / "drivers" / "uml"
PROGRAM = EXAMPLE / "uml-driver"


def test_its_manifest_is_right():
    manifest = parse(manifests.read((EXAMPLE / "manifest.json").read_text()), registry())
    assert manifest.driver == "uml.example.org"


@pytest.mark.skipif(not PROGRAM.exists(), reason="examples/drivers/uml is not built: make -C examples/drivers/uml")
@pytest.mark.skipif(not Path("/usr/bin/linux.uml").exists(), reason="user-mode-linux is not installed")
async def test_it_keeps_the_contract(rundir: Path):
    options = Options(
        hri_socket=str(rundir / "hri"),
        fd_socket=str(rundir / "fd"),
        machine=ParseDict(json.loads((EXAMPLE / "machine.json").read_text()), Machine()),
        manifest_digest=manifests.digest(manifests.read((EXAMPLE / "manifest.json").read_text())),
        driver_command=f"{PROGRAM} --any-host --hri {{hri}} --fd {{fd}}",
    )
    report = await conformance.run(options)
    assert [(result.id, result.message) for result in report.failed] == []
    assert sum(result.outcome == Outcome.PASSED for result in report.results) >= 30

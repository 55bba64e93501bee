"""Each driver conforms as far as it can be tried here: `make conform` says the same, line by line."""

import sys
from pathlib import Path

import pytest

from anyvisor.hri import conformance, manifests
from anyvisor.hri.conformance import Files, Options, Outcome
from anyvisor.planning.manifest import parse
from anyvisor.planning.registry import registry
from tests.guests import tiny_kernel

SRC = Path(conformance.__file__).parents[2]


@pytest.mark.parametrize("driver", ["qemu"])
async def test_a_driver_conforms(rundir: Path, driver: str):
    manifest = manifests.read((SRC / "drivers" / driver / "manifest.yaml").read_text())
    options = Options(
        hri_socket=str(rundir / "hri"),
        fd_socket=str(rundir / "fd"),
        level=1,
        manifest_digest=manifests.digest(manifest),
        manifest=parse(manifest, registry()),
        talking=Files(kernel=str(tiny_kernel())),
        talks=True,
        driver_command=f"{sys.executable} -m anyvisor.drivers.{driver} --hri {{hri}} --fd {{fd}}",
    )
    report = await conformance.run(options)
    assert [(result.id, result.message) for result in report.failed] == []
    skipped = {result.id for result in report.results if result.outcome == Outcome.SKIPPED}
    assert skipped <= {"books.run", "books.stop", "books.adopt"}  # the books of a driver that starts a VMM
    assert sum(result.outcome == Outcome.PASSED for result in report.results) >= 35

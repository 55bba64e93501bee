"""Each driver conforms as far as it can be tried here: `make conform` says the same, line by line."""

import sys
from pathlib import Path

import pytest

from anyvisor.hri import conformance, manifests
from anyvisor.hri.conformance import Files, Options, Outcome
from anyvisor.planning.manifest import parse
from anyvisor.planning.registry import registry
from tests.guests import reporting_guest, tiny_kernel

SRC = Path(conformance.__file__).parents[2]

LONG = ("machine.reset", "machine.restart", "protect.overhead", "protect.disk-full", "protect.log-flood")
"""Minutes of further boots and writes under emulation; `make conform` takes them."""
MAY_SKIP = {
    *("books.run", "books.stop", "books.adopt"),  # the books of a driver that starts a VMM
    *("machine.cpu-model", "machine.nics"),  # by KVM alone; not where no network can be made
    *("protect.disk-full", "protect.memory", "protect.log-flood"),  # not where no file system or group can be made
    *("change.nic.link",),
}


@pytest.mark.parametrize("driver", ["qemu"])
async def test_a_driver_conforms(rundir: Path, driver: str):
    manifest = manifests.read((SRC / "drivers" / driver / "manifest.yaml").read_text())
    guest = reporting_guest()
    options = Options(
        hri_socket=str(rundir / "hri"),
        fd_socket=str(rundir / "fd"),
        level=5,
        manifest_digest=manifests.digest(manifest),
        manifest=parse(manifest, registry()),
        talking=Files(kernel=str(tiny_kernel())),
        talks=True,
        reporting=Files(str(guest.kernel), str(guest.initrd), guest.command_line),
        skip=LONG,
        driver_command=f"{sys.executable} -m anyvisor.drivers.{driver} --hri {{hri}} --fd {{fd}}",
    )
    report = await conformance.run(options)
    assert [(result.id, result.message) for result in report.failed] == []
    skipped = {result.id for result in report.results if result.outcome == Outcome.SKIPPED}
    assert skipped <= MAY_SKIP
    assert sum(result.outcome == Outcome.PASSED for result in report.results) >= 65

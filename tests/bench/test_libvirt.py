"""The same guest by the driver that runs QEMU itself and by the one that asks libvirt: start, stop, memory."""

import os
import re
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION
from tests.bench.measure import milliseconds, proportional_memory, report, row
from tests.driver_rig import machine_of
from tests.guests import tiny_kernel
from tests.libvirt_daemon import missing
from tests.machine.libvirt_rig import LibvirtRig, heard, running
from tests.machine.rig import Rig, running_rig

REPEATS = 7


def machine(name: str) -> tuple[Machine, dict[str, int]]:
    made = machine_of(name)
    made.accelerator = ACCELERATOR_EMULATION
    made.boot.kernel.kernel_handle = "kernel"
    return made, {"kernel": os.open(tiny_kernel(), os.O_RDONLY | os.O_CLOEXEC)}


def pids(pattern: str) -> list[int]:
    """Processes whose command line matches."""
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in found.split() if int(word) != os.getpid()]


async def cycle(rig: Rig | LibvirtRig, name: str) -> tuple[float, float, float]:
    """Milliseconds to the first byte, to the end, and MiB of the VMM."""
    made, files = machine(name)
    start = time.perf_counter()
    guest = await rig.boot(made, files)
    await guest.type("")
    await heard(guest, "ANYVISOR")
    first = milliseconds(start)
    [vmm] = pids(f"guest=(anyvisor-)?{re.escape(name)},")
    memory = proportional_memory([vmm])
    start = time.perf_counter()
    await rig.client.destroy(name, generation=1)
    return first, milliseconds(start), memory


def places(rundir: Path) -> tuple[Path, Path]:
    """A directory for each driver, within reach of the daemon, which has a user of its own."""
    rundir.chmod(0o711)
    for name in ("q", "l"):
        (rundir / name).mkdir()
    return rundir / "q", rundir / "l"


async def test_a_driver_of_its_own_beside_libvirt(rundir: Path) -> None:
    if why := missing():
        pytest.skip(why)
    own, other = places(rundir)
    async with running_rig(own) as direct, running(other) as indirect:
        mine = [await cycle(direct, f"direct-{index}") for index in range(REPEATS)]
        theirs = [await cycle(indirect, f"indirect-{index}") for index in range(REPEATS)]
        daemon = proportional_memory(pids("^libvirtd"))
        drivers = [proportional_memory(pids(f"[.]drivers[.]{name} --hri")) for name in ("qemu", "libvirt")]
    ratios = [statistics.median(b[i] for b in theirs) / statistics.median(a[i] for a in mine) for i in range(3)]
    report(
        "one guest, by QEMU's own driver and by libvirt",
        [
            row("Prepare -> first byte, directly", [each[0] for each in mine]),
            row("Prepare -> first byte, by libvirt", [each[0] for each in theirs]),
            row("Destroy, directly", [each[1] for each in mine]),
            row("Destroy, by libvirt", [each[1] for each in theirs]),
            f"ratios: start {ratios[0]:.1f}, destroy {ratios[1]:.1f}, memory of the VMM {ratios[2]:.2f}",
            f"VMM: {statistics.median(each[2] for each in mine):.1f} and "
            f"{statistics.median(each[2] for each in theirs):.1f} MiB PSS",
            f"driver processes: {drivers[0]:.1f} and {drivers[1]:.1f} MiB; libvirtd: {daemon:.1f} MiB",
        ],
    )
    assert ratios[0] > 0

"""Level 4: is the overhead model true? Machines of several shapes, all memory touched, against the group's peak."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.hri.conformance.cgroup import Cgroup
from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.report_guest import is_ready, order
from anyvisor.hri.conformance.running import Running, Shape, booted
from anyvisor.hri.conformance.session import CheckSkippedError, Session, fail
from anyvisor.hri.conformance.standing import own_group, standing
from anyvisor.hri.v1.machine_pb2 import LaunchPlan
from anyvisor.hri.v1.machine_spec_pb2 import Cpu, Machine, Memory
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_EMULATION,
    ACCELERATOR_KVM,
    ACCELERATOR_MSHV,
    ACCELERATOR_NONE,
)
from anyvisor.planning import overhead as models
from anyvisor.planning.overhead import OverheadModel

CHECKS = CheckList()
MIB: Final = 1 << 20
LEFT_KIB: Final = 8192
"""What the guest keeps free of its memory, so that it does not run out itself."""
TOO_HIGH: Final = 2
_ACCELERATORS: Final = {
    ACCELERATOR_KVM: "kvm",
    ACCELERATOR_MSHV: "mshv",
    ACCELERATOR_EMULATION: "emulation",
    ACCELERATOR_NONE: "none",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One shape: what the model says, and what was seen beside the guest's memory, in bytes."""

    shape: models.Shape
    modelled: int
    charged: int
    """What the group was charged at its peak."""
    resident: int
    """What the VMM had resident at its peak, pages that it shares with others included."""

    @property
    def said(self) -> str:
        """For people."""
        return (
            f"{self.shape.vcpus} vCPU, {self.shape.guest_memory_bytes // MIB} MiB, {self.shape.disks} disks, "
            f"{self.shape.nics} NICs: the model says {self.modelled // MIB} MiB, the peak was {self.charged // MIB} "
            f"({self.resident // MIB} MiB with shared pages)"
        )

    @property
    def too_low(self) -> bool:
        """Whether a pod of that size would have been ended."""
        return self.modelled < self.charged

    @property
    def too_high(self) -> bool:
        """Whether more than half is wasted, however one counts."""
        return self.modelled > TOO_HIGH * max(self.charged, self.resident)


@CHECKS.add("protect.overhead", "The overhead model is neither below the peak of memory nor above twice of it", level=4)
async def overhead(session: Session) -> None:
    found = await standing(session)
    if found.running.answer.launch.mode != LaunchPlan.MODE_EXEC or session.manifest is None:
        raise CheckSkippedError("the driver starts no process of its own")
    model = session.manifest.overhead
    seen: list[Measured] = []
    if found.group is not None:
        seen.append(await _measure(found.running, found.asked, model, found.group))
    for sockets, memory in ((1, 128 * MIB), (4, 384 * MIB)):
        group = own_group(session, f"shape{sockets}")
        if group is None:
            raise CheckSkippedError(str(session.shared.get("no-group")))
        machine = Machine(cpu=Cpu(sockets=sockets), memory=Memory(size_bytes=memory))
        async with booted(session, session.reporting, Shape(machine, procs=group.procs)) as running:
            await is_ready(running)
            seen.append(await _measure(running, machine, model, group))
    wrong = [one for one in seen if one.too_low or one.too_high]
    session.notes.append("; ".join(one.said for one in seen))
    if wrong:
        fail(f"{'; '.join(one.said for one in wrong)}. A model that fits: {corrected(model, seen)}")


async def _measure(running: Running, machine: Machine, model: OverheadModel, group: Cgroup) -> Measured:
    await order(running, f"fill {LEFT_KIB}", "filled")
    guest = machine.memory.size_bytes
    pid = running.launcher.pid
    touched = guest_resident(Path(f"/proc/{pid}/smaps"), guest)
    shape = models.Shape(
        guest_memory_bytes=guest,
        vcpus=machine.cpu.sockets,
        disks=len(machine.disks),
        nics=len(machine.nics),
        firmware="kernel",
        accelerators=(_ACCELERATORS.get(running.answer.accelerator, "none"),),
        launcher=False,
    )
    return Measured(
        shape=shape,
        modelled=sum(item.bytes for item in models.overhead(model, shape)),
        charged=group.peak() - group.unmapped_cache() - touched,
        resident=_high_water(Path(f"/proc/{pid}/status")) - touched,
    )


def guest_resident(smaps: Path, size: int) -> int:
    """How much of the guest's memory is resident: of the mapping that has its size, else all of it."""
    mapped = 0
    for line in smaps.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "Size":
            mapped = int(rest.split()[0]) << 10
        elif name == "Rss" and size <= mapped <= size + 4 * MIB:
            return int(rest.split()[0]) << 10
    return size


def _high_water(status: Path) -> int:
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) << 10


def corrected(model: OverheadModel, seen: Sequence[Measured]) -> str:
    """The same model with another fixed part: the smallest, in whole MiB, that is above all peaks by a tenth."""
    fixed = models.amount(model.fixed, "fixed")
    wanted = max(fixed + one.charged * 11 // 10 - one.modelled for one in seen)
    return f"fixed: {max(-(-wanted // MIB), 1)}Mi in place of {model.fixed}, the rest as it is"

"""One machine with the reporting guest, booted once for all checks that only look, and for live changes."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from anyvisor.hri.conformance.cases import MAC, UUID, Basis
from anyvisor.hri.conformance.cgroup import Cgroup, CgroupError, name_for
from anyvisor.hri.conformance.claims import basis
from anyvisor.hri.conformance.materials import Materials
from anyvisor.hri.conformance.report_guest import GuestReport, ask, is_ready
from anyvisor.hri.conformance.running import Running, Shape, booted
from anyvisor.hri.conformance.session import CheckSkippedError, Session
from anyvisor.hri.v1.machine_spec_pb2 import Cpu, Device, Disk, Machine, Memory, Nic, Rng, SystemIdentity

MIB = 1 << 20
MEMORY = 192 * MIB
SOCKETS = 2
MAX_SOCKETS = 3
SECOND_MAC = "02:00:00:c0:ff:02"
SERIAL = "conform-sn-1"
FIRST, SECOND, THIRD = "conform-one", "conform-two", "conform-scsi"
"""Disks: id, serial number and label alike."""
FULL, DRIVE = "conform-full", "conform-drive"
"""A disk on a file system that is full, and an empty CD-ROM drive."""
LOG_HANDLE = "serial0/log"


@dataclass(slots=True)
class Standing:
    """The machine, what it was asked for, and what its guest reported when it had booted."""

    running: Running
    materials: Materials
    works: Basis
    report: GuestReport
    asked: Machine = field(default_factory=Machine)
    group: Cgroup | None = None
    """The VMM's control group, where one can be made."""


async def standing(session: Session) -> Standing:
    """The machine, booted by the first who asks. Skips the check when that failed before."""
    found = session.shared.get("standing")
    if isinstance(found, Standing):
        return found
    if found is not None:
        raise CheckSkippedError(f"the reporting guest did not run: {found}")
    session.shared["standing"] = "machine.boot failed"
    materials = session.stack.enter_context(Materials())
    group = own_group(session, "standing")
    works = basis(session)
    log = LOG_HANDLE if session.claim("console.log") and materials.on_full(LOG_HANDLE, "") else ""
    shape = Shape(machine_for(session, works, materials), materials.handles, log, group.procs if group else "")
    running = await boot(session, shape)
    made = Standing(running, materials, works, await ask(running), shape.machine, group)
    session.shared["standing"] = made
    return made


def own_group(session: Session, name: str) -> Cgroup | None:
    """A control group for one VMM that lives as long as the session; None where none can be made."""
    try:
        return session.stack.enter_context(Cgroup(name_for(name)))
    except CgroupError as error:
        session.shared["no-group"] = str(error)
        return None


async def boot(session: Session, shape: Shape, stack: AsyncExitStack | None = None) -> Running:
    """The reporting guest on a machine of the shape, ready for commands, for the life of the stack (the session's)."""
    if session.reporting is None:
        raise CheckSkippedError("no reporting guest was given (--reporting-kernel, --reporting-initrd)")
    told = session.facts.accelerators
    if told and not any(fact.runs_guest for fact in told):
        why = "; ".join(fact.message for fact in told if fact.message)
        raise CheckSkippedError(
            f"by the driver's facts, nothing runs a guest's kernel on this host: {why or 'no reason'}"
        )
    running = await (stack or session.stack).enter_async_context(booted(session, session.reporting, shape))
    await is_ready(running)
    return running


def machine_for(session: Session, works: Basis, materials: Materials) -> Machine:
    """All at once of what the driver claims and a guest can see."""
    machine = Machine(
        cpu=Cpu(sockets=SOCKETS, max_sockets=MAX_SOCKETS if session.claim("cpu.hotplug") else 0),
        memory=Memory(size_bytes=MEMORY),
        disks=_disks(session, works, materials),
        nics=_nics(session, works, materials),
        attachable_disks=2 if session.claim("change.disk.attach") else 0,
    )
    if session.claim("identity.uuid"):
        machine.identity.MergeFrom(SystemIdentity(uuid=UUID))
    if session.claim("identity.serial"):
        machine.identity.MergeFrom(SystemIdentity(serial=SERIAL))
    if session.claim("device.rng"):
        machine.devices.append(Device(id="conform-rng", rng=Rng()))
    return machine


def _disks(session: Session, works: Basis, materials: Materials) -> list[Disk]:
    serials, formats = session.claim("disk.serial"), session.claim("disk.format")
    buses, readonly = session.claim("disk.bus"), session.claim("disk.readonly")
    drives = session.claim("disk.cdrom.bus")

    def disk(name: str, **more: object) -> Disk:
        made = works.disk(name, **more)
        made.serial = name if serials else ""
        made.volume.Clear()
        return made

    first = disk(FIRST)
    first.volume.CopyFrom(materials.raw(f"{FIRST}/0", FIRST))
    second = disk(SECOND, read_only=readonly is not None)
    if session.claim("disk.pci-address"):
        second.pci_address = works.place
    if formats and "qcow2.backing" in formats.values:  # an overlay is the machine's own file, whatever the guest may do
        second.volume.CopyFrom(materials.overlay(f"{SECOND}/0", SECOND, read_only=False))
    else:
        second.volume.CopyFrom(materials.raw(f"{SECOND}/0", SECOND, read_only=second.read_only))
    found = [first, second]
    if materials.on_full(f"{FULL}/0", FULL):
        last = disk(FULL)
        last.volume.CopyFrom(materials.volume(f"{FULL}/0"))
        found.append(last)
    if buses and "scsi" in buses.values:
        third = disk(THIRD, bus=Disk.BUS_SCSI)
        third.volume.CopyFrom(materials.raw(f"{THIRD}/0", THIRD))
        found.append(third)
    if session.claim("change.disk.media") and drives and "scsi" in drives.values:
        found.append(Disk(id=DRIVE, kind=Disk.KIND_CDROM, bus=Disk.BUS_SCSI, read_only=True))
    return found


def _nics(session: Session, works: Basis, materials: Materials) -> list[Nic]:
    if not works.user_network and not materials.tap("nic-one/tap0"):
        return []
    first = works.nic("nic-one", mac=MAC)
    second = works.nic("nic-two", mac=SECOND_MAC)
    if session.claim("nic.mtu"):
        first.mtu = 1400
    if works.user_network:
        second.user.network = "10.0.3.0/24"
        return [first, second]
    materials.tap("nic-two/tap0")
    return [first, second]

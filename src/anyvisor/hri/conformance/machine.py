"""Level 2: identity and devices, read inside the guest."""

from pathlib import Path

from anyvisor.hri.conformance.cases import UUID
from anyvisor.hri.conformance.registry import CheckList
from anyvisor.hri.conformance.report_guest import GuestReport, ask, is_ready
from anyvisor.hri.conformance.running import Running, Shape
from anyvisor.hri.conformance.session import CheckSkippedError, Session, expect
from anyvisor.hri.conformance.standing import MEMORY, SERIAL, SOCKETS, Standing, boot, standing
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM, DeviceState

CHECKS = CheckList()
SECTOR = 512
LEAST_SEEN = 0.6
"""Share of its memory that a Linux guest counts as its own at least: kernel and firmware take the rest."""


@CHECKS.add("machine.boot", "The reporting guest boots with two disks, two NICs and two CPUs, and reports", level=2)
async def booted(session: Session) -> None:
    await standing(session)


@CHECKS.add("machine.identity", "UUID, serial number and MACs in the guest are those that were asked for", level=2)
async def identity(session: Session) -> None:
    found = await standing(session)
    system = found.report.one("system")
    if session.claim("identity.uuid"):
        seen = system.get("uuid", "").lower()
        expect(seen == UUID, f"the guest's UUID is {seen!r}, not {UUID}")
    if session.claim("identity.serial"):
        expect(system.get("serial") == SERIAL, f"the guest's serial number is {system.get('serial')!r}, not {SERIAL}")
    seen = sorted(nic["mac"] for nic in found.report.all("nic"))
    asked = sorted(nic.mac for nic in found.asked.nics)
    expect(seen == asked, f"the guest's interfaces have the addresses {seen}, not {asked}")


@CHECKS.add("machine.cpus", "The guest has as many CPUs as were asked for", level=2)
async def cpus(session: Session) -> None:
    cpu = (await standing(session)).report.one("cpu")
    expect(cpu.get("online") == str(SOCKETS), f"the guest has {cpu.get('online')} CPUs online, not {SOCKETS}")
    if session.claim("cpu.topology"):
        expect(cpu.get("sockets") == str(SOCKETS), f"the guest sees {cpu.get('sockets')} sockets, not {SOCKETS}")


@CHECKS.add("machine.cpu-model", "By hardware virtualization, host-passthrough is the host's CPU", level=2)
async def cpu_model(session: Session) -> None:
    session.needs("cpu.model.passthrough")
    found = await standing(session)
    if found.running.answer.accelerator != ACCELERATOR_KVM:
        raise CheckSkippedError("the guest does not run by KVM here: an emulated CPU has a model of its own")
    shape = Shape(Machine())
    shape.machine.cpu.model = "host-passthrough"
    report = await ask(await boot(session, shape))
    model = _host_model()
    seen = report.one("cpu").get("model", "")
    expect(seen == "_".join(model.split()), f"the guest's CPU is {seen!r}, the host's {model!r}")


def _host_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


@CHECKS.add("machine.memory", "The guest has the memory that was asked for", level=2)
async def memory(session: Session) -> None:
    seen = int((await standing(session)).report.one("memory").get("bytes", "0"))
    expect(LEAST_SEEN * MEMORY <= seen <= MEMORY, f"the guest counts {seen} bytes; it was given {MEMORY}")


@CHECKS.add("machine.disks", "Each disk is there by its serial number, with its size and content", level=2)
async def disks(session: Session) -> None:
    found = await standing(session)
    session.needs("disk.serial")
    for disk in found.asked.disks:
        if not disk.HasField("volume"):
            continue
        seen = found.report.disk(disk.serial)
        expect(seen, f"the guest has no disk with serial number {disk.serial!r}")
        expect(seen.get("label") == disk.id, f"disk {disk.id} begins with {seen.get('label')!r}")
        sectors = disk.volume.size_bytes // SECTOR
        expect(seen.get("sectors") == str(sectors), f"disk {disk.id} has {seen.get('sectors')} sectors, not {sectors}")
        read_only = "1" if disk.read_only else "0"
        expect(seen.get("ro") == read_only, f"disk {disk.id} has ro={seen.get('ro')}, not {read_only}")


@CHECKS.add("machine.nics", "Each NIC is there by its MAC, with its MTU", level=2)
async def nics(session: Session) -> None:
    found = await standing(session)
    if not found.asked.nics:
        raise CheckSkippedError("the driver has no user-space network, and no tap can be made here")
    for nic in found.asked.nics:
        seen = found.report.nic(nic.mac)
        expect(seen, f"the guest has no interface with address {nic.mac}")
        expect(not nic.mtu or seen.get("mtu") == str(nic.mtu), f"{nic.id} has MTU {seen.get('mtu')}, not {nic.mtu}")


@CHECKS.add(
    "machine.pci", "Disks and NICs are at the PCI places that the driver told, and that were asked for", level=2
)
async def pci(session: Session) -> None:
    found = await standing(session)
    state = await found.running.state()
    told = {device.id: device.address for device in state.devices}
    for disk in found.asked.disks:
        if disk.pci_address:
            expect(told.get(disk.id) == disk.pci_address, f"{disk.id} is told to be at {told.get(disk.id)!r}")
    for name, place in _seen_places(found).items():
        if _is_pci(told.get(name, "")):
            expect(place == told[name], f"the guest has {name} at {place!r}, the driver tells {told[name]}")
    expect(any(_is_pci(told.get(name, "")) for name in _seen_places(found)), f"no PCI place is told: {told}")


def _seen_places(found: Standing) -> dict[str, str]:
    places = {disk.id: found.report.disk(disk.serial).get("pci", "") for disk in found.asked.disks if disk.serial}
    places |= {nic.id: found.report.nic(nic.mac).get("pci", "") for nic in found.asked.nics}
    return {name: place for name, place in places.items() if place}


def _is_pci(address: str) -> bool:
    return address.count(":") == 2 and "." in address


@CHECKS.add("machine.devices", "No device is in a state of error, and each that was asked for is told of", level=2)
async def devices(session: Session) -> None:
    found = await standing(session)
    state = await found.running.state()
    bad = [f"{device.id}: {device.message}" for device in state.devices if device.state == DeviceState.STATE_ERROR]
    expect(not bad, f"devices in error: {'; '.join(bad)}")
    told = {device.id for device in state.devices}
    lost = [each.id for each in (*found.asked.disks, *found.asked.nics) if each.id not in told]
    expect(not lost, f"the state does not name {', '.join(lost)}")


@CHECKS.add("machine.rng", "The guest has a source of random numbers", level=2)
async def rng(session: Session) -> None:
    session.needs("device.rng")
    seen = (await standing(session)).report.one("rng").get("name", "")
    expect(seen.startswith("virtio_rng"), f"the guest's source is {seen!r}")


@CHECKS.add("machine.profile", "The machine type is told in full, so that it can be asked for again", level=2)
async def profile(session: Session) -> None:
    found = await standing(session)
    statement = session.needs("machine.profile")
    told = found.running.answer.profile
    expect(told, "Prepare tells no profile")
    expect(told in session.facts.machine_profiles or "*" in statement.values, f"{told!r} is no profile of this host")


@CHECKS.add("machine.reset", "After a reset, identity and places are the same in the guest", level=2)
async def reset(session: Session) -> None:
    session.needs("lifecycle.reset")
    found = await standing(session)
    since = found.running.launcher.said
    await found.running.done(session.client.reset(found.running.machine.id, generation=1))
    await is_ready(found.running, since)
    _same(found.report, await ask(found.running), "a reset")


@CHECKS.add("machine.restart", "Started again with the places that were told, the guest sees the same", level=2)
async def restart(session: Session) -> None:
    found = await standing(session)
    machine = Machine()
    machine.CopyFrom(found.asked)
    _give_back(machine, found.running)
    shape = Shape(machine, found.materials.handles, procs=found.group.procs if found.group else "")
    _same(found.report, await _once_more(session, shape, found), "a new start")


def _give_back(machine: Machine, running: Running) -> None:
    """What Prepare answered, as the agent stores it for the next start."""
    machine.profile = running.answer.profile
    told = {device.id: device.address for device in running.answer.devices}
    for device in (*machine.disks, *machine.nics):
        if _is_pci(told.get(device.id, "")):
            device.pci_address = told[device.id]


async def _once_more(session: Session, shape: Shape, found: Standing) -> GuestReport:
    """Boot the same machine; the first one is ended before, as both have the same disks."""
    await session.client.destroy(found.running.machine.id, generation=1)
    expect(await found.running.launcher.ended(30), "the VMM still runs 30 s after Destroy")
    found.running = await boot(session, shape)
    return await ask(found.running)


def _same(before: GuestReport, after: GuestReport, what: str) -> None:
    for kind in ("system", "nic", "disk"):
        old, new = _stable(before, kind), _stable(after, kind)
        expect(old == new, f"after {what}, the guest's {kind} records are {new}, before {old}")


def _stable(report: GuestReport, kind: str) -> list[dict[str, str]]:
    return [{name: value for name, value in record.items() if name != "carrier"} for record in report.all(kind)]

"""What the fake driver takes: exactly what its manifest claims. Everything else is refused with its path."""

from collections.abc import Iterator
from typing import Final

from anyvisor.hri.errors import Refused, finding
from anyvisor.hri.kit.understood import refuse_unhonoured
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Machine, Nic
from anyvisor.hri.v1.types_pb2 import Finding

HONOURED: Final = frozenset(
    {
        *("id", "name", "accelerator", "profile", "parameters", "attachable_disks"),
        *("cpu.sockets", "cpu.cores", "cpu.threads", "cpu.max_sockets", "cpu.model"),
        *("memory.size_bytes", "memory.max_bytes"),
        *("boot.firmware.kind", "boot.kernel", "boot.order"),
        *("disks.id", "disks.kind", "disks.bus", "disks.volume.layers", "disks.volume.size_bytes"),
        *("disks.read_only", "disks.serial", "disks.cache", "disks.hotplugged", "disks.tray_open"),
        *("disks.pci_address", "nics.pci_address"),
        *("nics.id", "nics.model", "nics.mac", "nics.tap.handles", "nics.user", "nics.link_down", "nics.queues"),
        *("consoles.id", "consoles.kind", "consoles.log_handle", "consoles.closed"),
        *("displays.id", "displays.model", "displays.heads"),
        *("devices.id", "devices.balloon", "devices.rng"),
        *("clock.utc_offset_seconds", "clock.timers.name", "clock.timers.present"),
        *("identity.uuid", "identity.serial", "identity.manufacturer", "identity.product", "identity.version"),
        *("identity.sku", "identity.family"),
        *("lifecycle.on_reboot", "lifecycle.start_paused", "lifecycle.grace_seconds"),
        "features.acpi",
    }
)


def refuse_unclaimed(machine: Machine) -> None:
    """Refuse the machine unless the manifest claims all of it."""
    refuse_unhonoured(machine, HONOURED, "the fake driver")
    found = list(_values(machine))
    if found:
        raise Refused(found[0].message, findings=found)


def _values(machine: Machine) -> Iterator[Finding]:
    if machine.features.HasField("acpi") and not machine.features.acpi:
        yield _no("features.acpi", "ACPI cannot be switched off")
    if machine.clock.utc_offset_seconds:
        yield _no("clock.utc_offset_seconds", "the clock runs in UTC only")
    for index, timer in enumerate(machine.clock.timers):
        if timer.present and timer.name != "hpet":
            yield _no(f"clock.timers[{index}]", "hpet is the only timer")
    for index, disk in enumerate(machine.disks):
        at = f"disks[{index}]"
        if disk.kind == Disk.KIND_LUN:
            yield _no(f"{at}.kind", "passing a LUN through is not supported")
        if disk.bus == Disk.BUS_USB or (disk.kind == Disk.KIND_CDROM and disk.bus == Disk.BUS_VIRTIO):
            yield _no(f"{at}.bus", "the bus is not supported for this kind of disk")
    for index, nic in enumerate(machine.nics):
        if nic.model not in (Nic.MODEL_UNSPECIFIED, Nic.MODEL_VIRTIO):
            yield _no(f"nics[{index}].model", "only virtio interfaces are supported")
    for index, console in enumerate(machine.consoles):
        if console.kind == console.KIND_VIRTIO:
            yield _no(f"consoles[{index}].kind", "only serial consoles are supported")


def _no(field: str, message: str) -> Finding:
    return finding("CAP_NO", message, field=field)

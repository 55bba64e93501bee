"""The whole translation: what is honoured, in which order, and what the agent has to provide."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anyvisor.drivers.libvirt.translate import platform
from anyvisor.drivers.libvirt.translate.devices import add_consoles, add_devices, add_displays, add_nics
from anyvisor.drivers.libvirt.translate.disks import add_disks, is_virtio
from anyvisor.drivers.libvirt.translate.draft import Draft, element, pci
from anyvisor.drivers.libvirt.translate.host import Host
from anyvisor.hri.errors import Refused
from anyvisor.hri.kit import ports as pci_ports
from anyvisor.hri.kit.drafts import check_device_ids
from anyvisor.hri.kit.understood import refuse_unhonoured
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM, Accelerator, DeviceState, Endpoint, Finding

NAMESPACE: Final = "urn:anyvisor:libvirt:1"
_DEVICE_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}")

HONOURED: Final = frozenset(
    {
        *("id", "name", "accelerator", "profile", "parameters", "identity", "clock", "lifecycle.start_paused"),
        *("lifecycle.grace_seconds", "lifecycle.on_reboot"),
        *("cpu.sockets", "cpu.cores", "cpu.threads", "cpu.model", "cpu.features", "memory.size_bytes"),
        *("boot.firmware.kind", "boot.firmware.serial_output", "boot.kernel", "boot.order"),
        *("disks.id", "disks.kind", "disks.bus", "disks.volume.layers", "disks.volume.size_bytes"),
        *("disks.read_only", "disks.shareable", "disks.serial", "disks.cache", "disks.io", "disks.on_error"),
        *("disks.block_size.logical", "disks.block_size.physical", "disks.pci_address", "disks.queues"),
        *("nics.id", "nics.model", "nics.mac", "nics.mtu", "nics.pci_address", "nics.acpi_index"),
        *("nics.user", "nics.link_down"),
        *("consoles.id", "consoles.kind", "consoles.log_handle", "displays.id", "displays.model", "displays.heads"),
        *("devices.id", "devices.balloon.free_page_reporting", "devices.balloon", "devices.rng", "devices.panic"),
        *("devices.input.type", "devices.input.bus"),
        *("features.acpi", "features.apic", "features.smm", "features.hidden_hypervisor"),
    }
)
"""Paths in Machine that this driver acts on; a machine that sets anything else is refused."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The answer to Prepare, as far as it follows from the machine and the host, and what Start needs."""

    xml: str
    groups: Mapping[str, str]
    """Descriptor group of the domain -> handle."""
    kernel_files: Mapping[str, str]
    """Name in the machine's directory -> handle."""
    handles: Sequence[str]
    endpoints: Sequence[Endpoint]
    devices: Sequence[DeviceState]
    findings: Sequence[Finding]
    accelerator: Accelerator
    profile: str


def domain_name(machine_id: str) -> str:
    """What libvirt calls the machine; names of other people's domains do not begin like this."""
    return f"anyvisor-{machine_id}"


def translate(machine: Machine, host: Host) -> Translation:
    """Machine -> domain. Raises Refused with all findings at once."""
    refuse_unhonoured(machine, HONOURED, "libvirt")
    check_device_ids(machine, _DEVICE_ID, "1 to 63 letters, digits, '_', '.' and '-'")
    draft = Draft()
    accelerator = platform.choose_accelerator(draft, machine, host)
    profile = platform.choose_profile(draft, machine, host)
    draft.add("name", text=domain_name(machine.id))
    platform.add_identity(draft, machine)
    draft.add("metadata", element(f"{{{NAMESPACE}}}machine", id=machine.id))
    platform.add_memory(draft, machine)
    platform.add_cpu(draft, machine, accelerator, host)
    platform.add_boot(draft, machine, profile, host)
    platform.add_features(draft, machine)
    platform.add_clock(draft, machine)
    _add_ends(draft, machine)
    buses = _add_ports(draft, machine)
    boot = _boot_orders(draft, machine)
    add_disks(draft, machine.disks, buses, boot)
    add_nics(draft, machine.nics, buses, boot)
    add_consoles(draft, machine.consoles)
    add_displays(draft, machine.displays, host)
    add_devices(draft, machine.devices)
    draft.check()
    return Translation(
        xml=_domain(draft, accelerator),
        groups=draft.groups,
        kernel_files=draft.kernel_files,
        handles=list(draft.handles),
        endpoints=draft.endpoints,
        devices=draft.devices,
        findings=draft.findings,
        accelerator=accelerator,
        profile=profile,
    )


def _domain(draft: Draft, accelerator: Accelerator) -> str:
    kind = "kvm" if accelerator == ACCELERATOR_KVM else "qemu"
    domain = element("domain", *draft.elements, element("devices", *draft.hardware), type=kind)
    ET.register_namespace("anyvisor", NAMESPACE)
    return ET.tostring(domain, encoding="unicode")


def _add_ends(draft: Draft, machine: Machine) -> None:
    """What happens when the guest goes down: libvirt holds the domain, and how it ended, until it is undefined."""
    draft.add("on_poweroff", text="destroy")
    draft.add("on_reboot", text="restart")
    draft.add("on_crash", text="preserve")
    if machine.lifecycle.on_reboot == machine.lifecycle.ON_REBOOT_STOP:
        draft.refuse("CAP_NO", "lifecycle.on_reboot", "a guest that reboots goes on; it cannot be stopped then")


def _add_ports(draft: Draft, machine: Machine) -> dict[str, int]:
    """Root ports for NICs and virtio disks; returns the bus of each."""
    nics = [(nic.id, nic.pci_address) for nic in machine.nics]
    disks = [(disk.id, disk.pci_address) for disk in machine.disks if is_virtio(disk)]
    try:
        buses = pci_ports.allocate(nics, disks)
    except pci_ports.AddressError as error:
        raise Refused(f"PCI addresses: {error}") from error
    count = max(buses.values(), default=0)
    for port in pci_ports.ports(count):
        place = pci(0, port.slot, port.function, more=port.function == 0 and count > 1)
        target = element("target", chassis=port.bus, port=f"{port.bus:#x}")
        draft.device("controller", target, place, type="pci", index=port.bus, model="pcie-root-port")
    return buses


def _boot_orders(draft: Draft, machine: Machine) -> dict[str, int]:
    """Device id -> place in the boot order. Without one, disks are tried as they stand."""
    if machine.boot.WhichOneof("method") == "kernel":
        return {}
    known = {*(disk.id for disk in machine.disks), *(nic.id for nic in machine.nics)}
    for index, device_id in enumerate(machine.boot.order):
        if device_id not in known:
            draft.refuse("VALUE_INVALID", f"boot.order[{index}]", f"there is no disk or NIC {device_id[:80]!r}")
    order = list(machine.boot.order) or [disk.id for disk in machine.disks if disk.HasField("volume")]
    return {device_id: index for index, device_id in enumerate(order, start=1)}

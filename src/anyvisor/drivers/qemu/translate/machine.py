"""The whole translation: what is honoured, in which order, and what the agent has to provide."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anyvisor.drivers.qemu.translate import firmware, platform, usb
from anyvisor.drivers.qemu.translate.devices import add_consoles, add_devices
from anyvisor.drivers.qemu.translate.disks import add_disks, is_virtio
from anyvisor.drivers.qemu.translate.displays import add_displays
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.drivers.qemu.translate.filesystems import add_filesystems
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.drivers.qemu.translate.nics import add_nics
from anyvisor.hri.errors import Refused
from anyvisor.hri.kit import ports as pci_ports
from anyvisor.hri.kit.drafts import check_device_ids
from anyvisor.hri.kit.understood import refuse_unhonoured
from anyvisor.hri.v1.machine_pb2 import LaunchPlan
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Machine
from anyvisor.hri.v1.types_pb2 import Accelerator, DeviceState, Endpoint, Finding, StopScript

CONTROL: Final = "control"
"""Id of the endpoint that the driver wants for itself."""
STOP: Final = "stop"
QMP_VERSION: Final = "1"
SANDBOX: Final = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
NOFILE: Final = 4096
_DEVICE_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}")

HONOURED: Final = frozenset(
    {
        *("id", "name", "accelerator", "profile", "parameters", "identity"),
        *("cpu.sockets", "cpu.cores", "cpu.threads", "cpu.max_sockets", "cpu.model", "cpu.features"),
        *("memory.size_bytes", "memory.max_bytes", "memory.shared", "memory.page_bytes"),
        *("boot.firmware", "boot.kernel", "boot.order"),
        *("disks.id", "disks.kind", "disks.bus", "disks.volume.layers", "disks.volume.size_bytes"),
        *("disks.read_only", "disks.shareable", "disks.serial", "disks.cache", "disks.io", "disks.on_error"),
        *("disks.block_size.logical", "disks.block_size.physical", "disks.block_size.discard_granularity"),
        *("disks.dedicated_io_thread", "disks.io_thread", "disks.pci_address", "disks.queues"),
        *("nics.id", "nics.model", "nics.mac", "nics.mtu", "nics.queues", "nics.pci_address", "nics.acpi_index"),
        *("nics.tap", "nics.user", "nics.link_down"),
        *("consoles.id", "consoles.kind", "consoles.log_handle", "consoles.closed"),
        *("devices.id", "devices.balloon.free_page_reporting", "devices.balloon", "devices.rng", "devices.panic"),
        *("devices.guest_agent_port", "devices.input.type", "devices.input.bus", "devices.tpm", "devices.watchdog"),
        *("devices.sound", "devices.vsock", "devices.usb_redirection"),
        *("displays.id", "displays.model", "displays.heads"),
        *("clock",),
        *("lifecycle",),
        "attachable_disks",
        *("features.acpi", "features.apic", "features.smm", "features.hidden_hypervisor"),
        *("features.hyperv", "features.pv_spinlocks"),
        *("filesystems.id", "filesystems.tag", "filesystems.directory_handle", "filesystems.read_only"),
        "filesystems.namespace_handle",
    }
)
"""Paths in Machine that this driver acts on; a machine that sets anything else is refused."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The answer to Prepare, as far as it follows from the machine and the host."""

    launch: LaunchPlan
    endpoints: Sequence[Endpoint]
    devices: Sequence[DeviceState]
    findings: Sequence[Finding]
    accelerator: Accelerator
    profile: str


def translate(machine: Machine, host: Host) -> Translation:
    """Machine -> launch plan. Raises Refused with all findings at once."""
    refuse_unhonoured(machine, HONOURED, "QEMU")
    check_device_ids(machine, _DEVICE_ID, "1 to 63 letters, digits, '_', '.' and '-'")
    draft = Draft()
    accelerator = platform.choose_accelerator(draft, machine, host)
    profile = platform.choose_profile(draft, machine, host)
    _check_switches(draft, machine)
    _add_process(draft, machine)
    firmware.add_uefi(draft, machine, host)
    platform.add_board(draft, machine, host, profile, accelerator)
    platform.add_identity(draft, machine)
    buses = _add_ports(draft, machine)
    platform.add_boot(draft, machine, qboot=platform.uses_qboot(machine, buses))
    boot = _boot_indexes(draft, machine)
    usb.add_controller(draft, machine)
    add_consoles(draft, machine.consoles)
    add_nics(draft, machine.nics, buses, boot, isolated=machine.parameters.get("userNetwork") == "isolated")
    add_disks(draft, machine.disks, buses, boot, more=machine.attachable_disks > 0)
    add_displays(draft, machine.displays, host)
    add_devices(draft, machine.devices, host)
    add_filesystems(draft, machine, host)
    draft.check()
    launch = LaunchPlan(
        mode=LaunchPlan.MODE_EXEC,
        argv=[host.emulator, *draft.argv],
        descriptors=draft.slots,
        working_directory=draft.working_directory,
        env=draft.env,
        seeds=draft.seeds,
        pairs=draft.pairs,
        helpers=draft.helpers,
    )
    launch.limits.add(name="nofile", soft=NOFILE, hard=NOFILE)
    return Translation(launch, draft.endpoints, draft.devices, draft.findings, accelerator, profile)


def _check_switches(draft: Draft, machine: Machine) -> None:
    if machine.features.HasField("apic") and not machine.features.apic:
        draft.refuse("CAP_NO", "features.apic", "the board cannot be run without its APIC", have="on", want="off")


def _add_process(draft: Draft, machine: Machine) -> None:
    """QEMU's own behaviour: no defaults, held at start, end states held for the driver, two control channels."""
    draft.option("name", f"guest={machine.id},debug-threads=on")
    draft.argv += ["-nodefaults", "-no-user-config", "-S"]
    draft.option("display", "none")
    draft.option("sandbox", SANDBOX)
    draft.option("msg", "timestamp=on")
    draft.option("action", f"shutdown=pause,panic=pause,reboot={platform.reboot_action(machine)}")
    for endpoint in (control_endpoint(), stop_endpoint()):
        number = draft.listen(endpoint)
        draft.option("chardev", f"socket,id={endpoint.id},fd={number},server=on,wait=off")
        draft.option("mon", f"chardev={endpoint.id},mode=control")


def control_endpoint() -> Endpoint:
    """The channel that the driver holds."""
    return Endpoint(
        id=CONTROL, purpose=Endpoint.PURPOSE_CONTROL, protocol="qmp", protocol_version=QMP_VERSION, exclusive=True
    )


def stop_endpoint() -> Endpoint:
    """The channel that is kept free for the stop hook."""
    return Endpoint(
        id=STOP,
        purpose=Endpoint.PURPOSE_STOP,
        protocol="qmp",
        protocol_version=QMP_VERSION,
        exclusive=True,
        stop_script=stop_script(),
    )


def stop_script() -> StopScript:
    """How a hook without JSON shuts the guest down.

    The last step is repeated by the hook. It continues a paused guest, presses the button and asks for the run state.
    `shutdown"` ends both the event's reason (guest-shutdown) and the run state of a guest that was down before.
    `finish` may be played on a connection of its own: negotiating twice is an error that changes nothing.
    """
    press = b'{"execute":"cont"}{"execute":"system_powerdown"}{"execute":"query-status"}'
    return StopScript(
        request=[
            StopScript.Step(expect=b'"QMP"'),
            StopScript.Step(send=b'{"execute":"qmp_capabilities"}', expect=b'"return"'),
            StopScript.Step(send=press, expect=b'shutdown"'),
        ],
        finish=[StopScript.Step(send=b'{"execute":"qmp_capabilities"}{"execute":"quit"}', expect=b'"SHUTDOWN"')],
    )


def _add_ports(draft: Draft, machine: Machine) -> dict[str, int]:
    """Root ports for NICs and virtio disks, and spare ones at the end; returns the bus of each device.

    A machine that starts by the fast firmware has no spare ones, as that one numbers several the other way round; its
    further disks go to SCSI.
    """
    nics = [(nic.id, nic.pci_address) for nic in machine.nics]
    disks = [(disk.id, disk.pci_address) for disk in machine.disks if is_virtio(disk)]
    try:
        buses = pci_ports.allocate(nics, disks)
    except pci_ports.AddressError as error:
        raise Refused(f"PCI addresses: {error}") from error
    spare = 0 if platform.uses_qboot(machine, buses) else machine.attachable_disks
    count = min(max(buses.values(), default=0) + spare, pci_ports.MAX_PORTS)
    for port in pci_ports.ports(count):
        place = {"bus": "pcie.0", "addr": f"{port.slot:#x}.{port.function:#x}"}
        first = True if port.function == 0 and count > 1 else None
        draft.device(
            port.name, "pcie-root-port", place, {"port": port.bus, "chassis": port.bus, "multifunction": first}
        )
    return buses


def _boot_indexes(draft: Draft, machine: Machine) -> dict[str, int]:
    """Device id -> place in the boot order. Without one, disks are tried as they stand."""
    if platform.boots_kernel(machine):
        return {}
    known = {*(disk.id for disk in machine.disks), *(nic.id for nic in machine.nics)}
    for index, device_id in enumerate(machine.boot.order):
        if device_id not in known:
            draft.refuse("VALUE_INVALID", f"boot.order[{index}]", f"there is no disk or NIC {device_id[:80]!r}")
    order = list(machine.boot.order) or [disk.id for disk in machine.disks if _bootable(disk)]
    return {device_id: index for index, device_id in enumerate(order, start=1)}


def _bootable(disk: Disk) -> bool:
    return disk.HasField("volume")

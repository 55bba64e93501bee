"""The whole translation: what is honoured, how the VMM is started, and what it is told once it runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anyvisor.drivers.cloud_hypervisor.translate import platform, slots
from anyvisor.drivers.cloud_hypervisor.translate.disks import disk_config, overlay_of
from anyvisor.drivers.cloud_hypervisor.translate.host import Host
from anyvisor.drivers.cloud_hypervisor.translate.nics import NicRequest, nic_request
from anyvisor.drivers.cloud_hypervisor.translate.overlays import Overlay
from anyvisor.hri.errors import Refused, finding
from anyvisor.hri.kit.drafts import Draft, Json, check_device_ids
from anyvisor.hri.kit.understood import refuse_unhonoured
from anyvisor.hri.v1.machine_pb2 import LaunchPlan
from anyvisor.hri.v1.machine_spec_pb2 import Console, Machine
from anyvisor.hri.v1.types_pb2 import (
    ACCELERATOR_KVM,
    ACCELERATOR_UNSPECIFIED,
    DeviceState,
    Endpoint,
    Finding,
    StopScript,
)

CONTROL: Final = "control"
EVENTS: Final = "events"
STOP: Final = "stop"
CONSOLE_PATH: Final = "serial0.sock"
PROTOCOL: Final = "http+json"
API_VERSION: Final = "1"
NOFILE: Final = 4096
_DEVICE_ID: Final = re.compile(r"[A-Za-z0-9.-][A-Za-z0-9_.-]{0,62}")
"""Two underscores at the beginning are the VMM's own; one is allowed to nobody, so that it stays simple."""

HONOURED: Final = frozenset(
    {
        *("id", "name", "accelerator", "parameters", "identity.uuid", "identity.serial", "identity.manufacturer"),
        *("identity.product", "identity.version", "identity.sku", "identity.family", "identity.oem_strings"),
        "identity.chassis_asset",
        *("cpu.sockets", "cpu.cores", "cpu.threads", "cpu.max_sockets", "cpu.model"),
        *("memory.size_bytes", "memory.max_bytes", "memory.page_bytes", "memory.shared"),
        *("boot.firmware.kind", "boot.firmware.secure_boot", "boot.kernel"),
        *("disks.id", "disks.kind", "disks.bus", "disks.volume.layers", "disks.volume.size_bytes"),
        *("disks.read_only", "disks.serial", "disks.cache", "disks.on_error", "disks.pci_address", "disks.queues"),
        *("disks.dedicated_io_thread", "disks.hotplugged", "attachable_disks"),
        *("nics.id", "nics.model", "nics.mac", "nics.mtu", "nics.queues", "nics.pci_address"),
        *("nics.tap", "nics.user", "nics.vhost_user", "nics.pci"),
        *("consoles.id", "consoles.kind", "consoles.log_handle"),
        *("devices.id", "devices.balloon.free_page_reporting", "devices.balloon.statistics_seconds"),
        *("devices.balloon", "devices.rng", "devices.panic"),
        *("clock.utc_offset_seconds", "clock.timers"),
        *("lifecycle",),
        *("features.acpi", "features.apic"),
    }
)
"""Paths in Machine that this driver acts on or refuses by itself; a machine that sets anything else is refused."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The answer to Prepare, as far as it follows from the machine and the host, and what Start will need."""

    launch: LaunchPlan
    endpoints: Sequence[Endpoint]
    devices: Sequence[DeviceState]
    findings: Sequence[Finding]
    config: Mapping[str, Json]
    """VmConfig for `vm.create`, without the network interfaces: their descriptors travel beside requests."""
    nics: Sequence[NicRequest]
    overlays: Sequence[Overlay]

    @property
    def driver_handles(self) -> list[str]:
        """What the driver wants with Start."""
        nics = (handle for nic in self.nics for handle in nic.handles)
        images = (handle for overlay in self.overlays for handle in (overlay.handle, overlay.base_handle))
        return list(dict.fromkeys((CONTROL, EVENTS, *nics, *images)))


def translate(machine: Machine, host: Host) -> Translation:
    """Machine -> launch plan and VmConfig. Raises Refused with all findings at once."""
    refuse_unhonoured(machine, HONOURED, "Cloud Hypervisor")
    check_device_ids(machine, _DEVICE_ID, "1 to 63 letters, digits, '_', '.' and '-', not '_' first")
    draft = Draft()
    _check_accelerator(draft, machine, host)
    platform.check_switches(draft, machine)
    argv = _process(draft, host)
    config: dict[str, Json] = {
        "cpus": platform.add_cpus(draft, machine.cpu),
        "memory": platform.add_memory(draft, machine.memory),
        "payload": platform.add_boot(draft, machine.boot, host, machine.parameters.get("firmware", "")),
        "serial": _serial(draft, machine.consoles),
        "console": {"mode": "Off"},
        **platform.add_devices(draft, machine.devices),
    }
    if identity := platform.add_identity(draft, machine):
        config["platform"] = identity
    nics = _add_slotted(draft, machine, config)
    draft.check()
    overlays = [found for disk in machine.disks if (found := overlay_of(disk, draft.reopened)) is not None]
    if host.landlock and machine.parameters.get("landlock") != "off":
        config |= _confined(overlays)
    launch = LaunchPlan(mode=LaunchPlan.MODE_EXEC, argv=argv, descriptors=draft.slots, working_directory=True)
    launch.limits.add(name="nofile", soft=NOFILE, hard=NOFILE)
    return Translation(launch, draft.endpoints, draft.devices, draft.findings, config, nics, overlays)


def _confined(overlays: Sequence[Overlay]) -> dict[str, Json]:
    """Nothing but what the machine names can be opened, once it is made: images below overlays are named nowhere else.

    The launcher's directory is for what comes later.
    """
    below: list[Json] = [{"path": overlay.base_path, "access": "r"} for overlay in overlays]
    rules: list[Json] = [{"path": ".", "access": "rw"}, *below]
    return {"landlock_enable": True, "landlock_rules": rules}


def _check_accelerator(draft: Draft, machine: Machine, host: Host) -> None:
    if machine.accelerator not in (ACCELERATOR_UNSPECIFIED, ACCELERATOR_KVM):
        draft.refuse("VALUE_NOT_IN_SET", "accelerator", "only KVM is supported", have="kvm")
    elif not host.kvm_opens:
        draft.refuse("VALUE_UNAVAILABLE", "accelerator", host.kvm_message)
    elif not host.kvm_runs:
        draft.note("ACCELERATOR_DOUBTFUL", "accelerator", host.kvm_message, severity="warn")


def _process(draft: Draft, host: Host) -> list[str]:
    """The command line: no path but the program's, no guest, its end state held until it is read."""
    control = draft.listen(
        Endpoint(id=CONTROL, purpose=Endpoint.PURPOSE_CONTROL, protocol=PROTOCOL, protocol_version=API_VERSION),
        Endpoint.SOCKET_STREAM,
    )
    events = draft.listen(
        Endpoint(id=EVENTS, purpose=Endpoint.PURPOSE_EVENTS, protocol="json", protocol_version=API_VERSION),
        Endpoint.SOCKET_FIFO,
    )
    draft.endpoints.append(stop_endpoint())
    return [host.binary, "--api-socket", f"fd={control}", "--event-monitor", f"fd={events}", "--no-shutdown"]


def stop_endpoint() -> Endpoint:
    """The stop hook's way: a further connection to the control socket."""
    return Endpoint(
        id=STOP,
        purpose=Endpoint.PURPOSE_STOP,
        protocol=PROTOCOL,
        protocol_version=API_VERSION,
        socket=Endpoint.SOCKET_STREAM,
        shared_with=CONTROL,
        stop_script=stop_script(),
    )


def stop_script() -> StopScript:
    """How a hook without JSON shuts the guest down.

    The last step is repeated by the hook. It lets a paused guest run (an error of a running one does no harm), presses
    the button and asks for the state, which is `Created` once the guest is down. Each step waits for an answer, since a
    request whose client has gone is dropped unread.
    """
    ask = _bare("PUT", "vm.resume") + _bare("PUT", "vm.power-button") + _bare("GET", "vm.info")
    return StopScript(
        request=[StopScript.Step(send=ask, expect=b'"state":"Created"')],
        finish=[StopScript.Step(send=_bare("PUT", "vmm.shutdown"), expect=b"HTTP/1.1 200")],
    )


def _bare(method: str, path: str) -> bytes:
    return f"{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _serial(draft: Draft, consoles: Sequence[Console]) -> Json:
    """The serial port: a socket that the VMM binds when the machine is created, and then no file beside it."""
    if not consoles:
        return {"mode": "Off"}
    for index, console in enumerate(consoles):
        if console.kind == Console.KIND_VIRTIO:
            draft.refuse("CAP_NO", f"consoles[{index}].kind", "a virtio console has no socket; use a serial one")
    if len(consoles) > 1:
        draft.refuse("LIMIT_EXCEEDED", "consoles[1]", "there is one serial port", have="1", want=str(len(consoles)))
    console = consoles[0]
    draft.endpoints.append(
        Endpoint(
            id=f"console/{console.id}",
            purpose=Endpoint.PURPOSE_CONSOLE,
            protocol="raw",
            protocol_version="1",
            exclusive=True,
            socket=Endpoint.SOCKET_STREAM,
            vmm_path=CONSOLE_PATH,
            device_id=console.id,
            reader_logs=bool(console.log_handle),
        )
    )
    return {"mode": "Socket", "socket": CONSOLE_PATH}


def _add_slotted(draft: Draft, machine: Machine, config: dict[str, Json]) -> list[NicRequest]:
    """Disks and NICs, each at a PCI slot of its own."""
    wanted = [(item.id, item.pci_address) for item in (*machine.nics, *machine.disks)]
    try:
        places = slots.allocate(wanted)
    except slots.SlotError as error:
        raise Refused(
            f"PCI addresses: {error}", findings=[finding("LIMIT_EXCEEDED", str(error), field="disks")]
        ) from error
    vcpus = platform.vcpus(machine.cpu)
    nics: list[NicRequest] = []
    for index, nic in enumerate(machine.nics):
        request = nic_request(draft, nic, f"nics[{index}]", places[nic.id], vcpus)
        if request is not None:
            nics.append(request)
            draft.plug(nic.id, slots.address(places[nic.id]))
    disks: list[Json] = []
    for index, disk in enumerate(machine.disks):
        made = disk_config(draft, disk, f"disks[{index}]", places[disk.id], vcpus, draft.reopened)
        if made is not None:
            disks.append(made)
            draft.plug(disk.id, slots.address(places[disk.id]))
    if disks:
        config["disks"] = disks
    return nics

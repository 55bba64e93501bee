"""Consoles and the small devices: guest agent port, balloon, random numbers, panic, tablet."""

from collections.abc import Sequence
from typing import Final

from anyvisor.drivers.qemu.translate import addresses, usb
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.drivers.qemu.translate.tpm import add_tpm
from anyvisor.hri.kit.drafts import Json
from anyvisor.hri.v1.machine_spec_pb2 import Console, Device
from anyvisor.hri.v1.types_pb2 import Endpoint

ISA_SERIAL_PORTS: Final = 4
WATCHDOG_ACTIONS: Final = {"reset": "reset", "poweroff": "pause", "shutdown": "shutdown"}
AGENT_PORT: Final = "agent0"
"""Id of the guest agent's port: only a port with an id reports that somebody opened it."""
AGENT_CHARDEV: Final = "guest-agent"


def add_consoles(draft: Draft, consoles: Sequence[Console]) -> None:
    """Serial consoles: all output goes to the log, and the endpoint serves one client."""
    serial = 0
    for index, console in enumerate(consoles):
        path = f"consoles[{index}]"
        if console.kind == Console.KIND_VIRTIO:
            draft.refuse("CAP_NO", f"{path}.kind", "virtio consoles are not supported; use a serial one")
            continue
        if serial == ISA_SERIAL_PORTS:
            draft.refuse("LIMIT_EXCEEDED", path, f"a machine has at most {ISA_SERIAL_PORTS} serial consoles")
            continue
        chardev = f"console-{console.id}"
        draft.option("chardev", _console_chardev(draft, console, chardev))
        draft.device(chardev, "isa-serial", {}, {"chardev": chardev, "index": serial})
        serial += 1


def _console_chardev(draft: Draft, console: Console, chardev: str) -> str:
    if console.closed:
        text = f"null,id={chardev}"
    else:
        endpoint = Endpoint(
            id=f"console/{console.id}",
            purpose=Endpoint.PURPOSE_CONSOLE,
            protocol="raw",
            protocol_version="1",
            exclusive=True,
            device_id=console.id,
        )
        text = f"socket,id={chardev},fd={draft.listen(endpoint)},server=on,wait=off"
    if console.log_handle:
        text += f",logfile={draft.fdset(console.log_handle)},logappend=on"
    return text


def device_name(device: Device) -> str:
    """The id of a device in QEMU."""
    return f"device-{device.id}"


def add_devices(draft: Draft, devices: Sequence[Device], host: Host) -> None:
    """Devices with a fixed slot; at most one of each kind."""
    seen: set[str] = set()
    for index, device in enumerate(devices):
        kind = device.WhichOneof("kind")
        path = f"devices[{index}]"
        if kind in seen:
            draft.refuse("LIMIT_EXCEEDED", path, f"a machine has at most one {kind} device")
            continue
        if kind is not None:
            seen.add(kind)
        match kind:
            case "balloon":
                _add_balloon(draft, device)
            case "rng":
                draft.json("object", {"qom-type": "rng-random", "id": "entropy", "filename": "/dev/urandom"})
                draft.device(
                    device_name(device), "virtio-rng-pci-non-transitional", addresses.fixed("rng"), {"rng": "entropy"}
                )
            case "panic":
                if device.panic.model not in ("", "pvpanic"):
                    draft.refuse("VALUE_NOT_IN_SET", f"{path}.panic.model", "use pvpanic", have="pvpanic")
                draft.device(device_name(device), "pvpanic-pci", addresses.fixed("panic"))
            case "input":
                _add_tablet(draft, device, path)
            case "watchdog":
                _add_watchdog(draft, device, f"{path}.watchdog")
            case "sound":
                _add_sound(draft, device, f"{path}.sound")
            case "vsock":
                place = addresses.fixed("vsock")
                vsock: dict[str, Json] = {
                    "guest-cid": device.vsock.cid,
                    "vhostfd": str(draft.number(device.vsock.handle)),
                }
                draft.device(device_name(device), "vhost-vsock-pci", place, vsock)
            case "usb_redirection":
                usb.add_redirection(draft, device, f"{path}.usb_redirection")
            case "tpm":
                add_tpm(draft, device, host, f"{path}.tpm")
            case "guest_agent_port":
                _add_agent_port(draft)
            case other:
                draft.refuse("CAP_NO", f"{path}.{other}", f"{other or 'an empty device'} is not supported")


def _add_balloon(draft: Draft, device: Device) -> None:
    properties: dict[str, Json] = {
        "deflate-on-oom": True,
        "free-page-reporting": device.balloon.free_page_reporting,
    }
    draft.device(device_name(device), "virtio-balloon-pci-non-transitional", addresses.fixed("balloon"), properties)


def _add_tablet(draft: Draft, device: Device, path: str) -> None:
    """A pointer with absolute coordinates; USB costs a controller, and the guest polls it."""
    name = device_name(device)
    if device.input.type != "tablet":
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.input.type", "use tablet", have="tablet", want=device.input.type[:40])
    match device.input.bus:
        case "virtio":
            draft.device(name, "virtio-tablet-pci", addresses.fixed("input"))
        case "" | "usb":
            draft.device(name, "usb-tablet", usb.pointer_port())
        case other:
            draft.refuse(
                "VALUE_NOT_IN_SET", f"{path}.input.bus", "use usb or virtio", have="usb, virtio", want=other[:40]
            )


def _add_watchdog(draft: Draft, device: Device, path: str) -> None:
    """A power-off is a pause, which the driver then ends: QEMU's own would leave images as they are, without a word."""
    if device.watchdog.model not in ("", "i6300esb"):
        have, want = "i6300esb", device.watchdog.model[:40]
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.model", "use i6300esb", have=have, want=want)
    action = WATCHDOG_ACTIONS.get(device.watchdog.action or "reset")
    if action is None:
        have, want = ", ".join(WATCHDOG_ACTIONS), device.watchdog.action[:40]
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.action", f"use one of {have}", have=have, want=want)
        return
    draft.option("action", f"watchdog={action}")
    draft.device(device_name(device), "i6300esb", addresses.fixed("watchdog"))


def _add_sound(draft: Draft, device: Device, path: str) -> None:
    """A sound card that nobody hears."""
    place = addresses.fixed("sound")
    match device.sound.model:
        case "" | "ich9":
            draft.device("sound", "ich9-intel-hda", place)
            draft.device(device_name(device), "hda-duplex", {"bus": "sound.0", "cad": 0}, {"audiodev": "sound"})
        case "ac97":
            draft.device(device_name(device), "AC97", place, {"audiodev": "sound"})
        case other:
            draft.refuse("VALUE_NOT_IN_SET", f"{path}.model", "use ich9 or ac97", have="ich9, ac97", want=other[:40])
            return
    draft.option("audiodev", "none,id=sound")


def _add_agent_port(draft: Draft) -> None:
    endpoint = Endpoint(
        id=AGENT_CHARDEV,
        purpose=Endpoint.PURPOSE_GUEST_AGENT,
        protocol="guest-agent+json",
        protocol_version="1",
        exclusive=True,
    )
    draft.option("chardev", f"socket,id={AGENT_CHARDEV},fd={draft.listen(endpoint)},server=on,wait=off")
    draft.device("serial-bus", "virtio-serial-pci-non-transitional", addresses.fixed("serial"))
    draft.device(
        AGENT_PORT,
        "virtserialport",
        {"bus": "serial-bus.0", "nr": 1},
        {"chardev": AGENT_CHARDEV, "name": "org.qemu.guest_agent.0"},
    )

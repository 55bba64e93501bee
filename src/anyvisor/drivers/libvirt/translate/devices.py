"""NICs, consoles, displays and the small devices."""

import ipaddress
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Final

from anyvisor.drivers.libvirt.translate import addresses
from anyvisor.drivers.libvirt.translate.draft import Draft, element, pci
from anyvisor.drivers.libvirt.translate.host import Host
from anyvisor.hri.kit import ports as pci_ports
from anyvisor.hri.v1.machine_spec_pb2 import Console, Device, Display, Nic
from anyvisor.hri.v1.types_pb2 import Endpoint

MODELS: Final = {
    Nic.MODEL_UNSPECIFIED: "virtio-non-transitional",
    Nic.MODEL_VIRTIO: "virtio-non-transitional",
    Nic.MODEL_E1000: "e1000",
    Nic.MODEL_E1000E: "e1000e",
    Nic.MODEL_NE2K_PCI: "ne2k_pci",
    Nic.MODEL_PCNET: "pcnet",
    Nic.MODEL_RTL8139: "rtl8139",
}
SERIAL_PORTS: Final = 4
DEFAULT_DISPLAY: Final = "vga"
RFB_VERSION: Final = "3.8"
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def add_nics(draft: Draft, nics: Sequence[Nic], buses: Mapping[str, int], boot: Mapping[str, int]) -> None:
    """All network interfaces, in the machine's order. libvirt takes no tap as a descriptor, so all are user-mode."""
    for index, nic in enumerate(nics):
        path = f"nics[{index}]"
        if nic.model not in MODELS:
            draft.refuse("CAP_NO", f"{path}.model", "this model is not supported; use virtio, e1000e or e1000")
        elif not _MAC.fullmatch(nic.mac.lower()):
            draft.refuse("VALUE_INVALID", f"{path}.mac", "a MAC address has the form aa:bb:cc:dd:ee:ff", have=nic.mac)
        elif _is_user(draft, nic, path):
            draft.hardware.append(_nic(draft, nic, buses[nic.id], boot.get(nic.id), path))
            draft.plug(nic.id, pci_ports.address(buses[nic.id]))


def _is_user(draft: Draft, nic: Nic, path: str) -> bool:
    back_end = nic.WhichOneof("backend")
    if back_end != "user":
        draft.refuse("CAP_NO", f"{path}.{back_end or 'user'}", "only user-mode networking is supported", have="user")
        return False
    if nic.user.forwards:
        draft.refuse("CAP_NO", f"{path}.user.forwards", "libvirt forwards no ports of a user-mode network")
        return False
    return True


def _nic(draft: Draft, nic: Nic, bus: int, boot: int | None, path: str) -> ET.Element:
    children = [element("mac", address=nic.mac.lower()), element("model", type=MODELS[nic.model])]
    try:
        network = ipaddress.IPv4Network(nic.user.network)
    except ValueError:
        draft.refuse("VALUE_INVALID", f"{path}.user.network", "an IPv4 network is needed", have=nic.user.network)
    else:
        address = str(network.network_address)
        children.append(element("ip", family="ipv4", address=address, prefix=network.prefixlen))
        draft.note(
            "SUBSTITUTED",
            f"{path}.user",
            "libvirt lets QEMU choose the addresses inside the user-mode network, and tells the guest no names",
            have="gateway .2, guest .15",
            want="gateway .1, guest .2",
        )
    if nic.link_down:
        children.append(element("link", state="down"))
    if nic.mtu:
        children.append(element("mtu", size=nic.mtu))
    if nic.acpi_index:
        children.append(element("acpi", index=nic.acpi_index))
    if boot is not None:
        children.append(element("boot", order=boot))
    return element("interface", *children, pci(bus), type="user")


def add_consoles(draft: Draft, consoles: Sequence[Console]) -> None:
    """Serial consoles. libvirt gives a stream to one client; what it says is logged by its reader."""
    for index, console in enumerate(consoles):
        path = f"consoles[{index}]"
        if console.kind == Console.KIND_VIRTIO:
            draft.refuse("CAP_NO", f"{path}.kind", "virtio consoles are not supported; use a serial one")
        elif index >= SERIAL_PORTS:
            draft.refuse("LIMIT_EXCEEDED", path, f"a machine has at most {SERIAL_PORTS} serial consoles")
        else:
            draft.device("serial", element("target", type="isa-serial", port=index), type="pty")
            draft.served(
                Endpoint(
                    id=f"console/{console.id}",
                    purpose=Endpoint.PURPOSE_CONSOLE,
                    protocol="raw",
                    protocol_version="1",
                    exclusive=True,
                    device_id=console.id,
                    reader_logs=bool(console.log_handle),
                )
            )


def add_displays(draft: Draft, displays: Sequence[Display], host: Host) -> None:
    """The graphics card, and VNC without a port: who looks gets a descriptor."""
    if not displays:
        draft.device("video", element("model", type="none"))
        return
    if len(displays) > 1 or displays[0].heads > 1:
        draft.refuse("LIMIT_EXCEEDED", "displays", "a machine has at most one display with one head", have="1")
    display = displays[0]
    model = display.model or DEFAULT_DISPLAY
    if model not in host.displays:
        draft.refuse(
            "VALUE_NOT_IN_SET",
            "displays[0].model",
            f"there is no graphics card {model[:40]!r} here; use one of: {', '.join(sorted(host.displays))}",
            have=", ".join(sorted(host.displays)),
            want=model[:40],
        )
    draft.device("graphics", element("listen", type="none"), type="vnc")
    where = () if model == "ramfb" else (pci(0, addresses.SLOTS["display"]),)
    draft.device("video", element("model", type=model, heads=1), *where)
    draft.served(
        Endpoint(
            id=f"display/{display.id}",
            purpose=Endpoint.PURPOSE_DISPLAY,
            protocol="rfb",
            protocol_version=RFB_VERSION,
            device_id=display.id,
        )
    )


def add_devices(draft: Draft, devices: Sequence[Device]) -> None:
    """Devices with a fixed slot; at most one of each kind."""
    seen: set[str] = set()
    for index, device in enumerate(devices):
        kind = device.WhichOneof("kind") or ""
        path = f"devices[{index}]"
        if kind in seen:
            draft.refuse("LIMIT_EXCEEDED", path, f"a machine has at most one {kind} device")
            continue
        seen.add(kind)
        _add_device(draft, device, kind, path)
    if "balloon" not in seen:
        draft.device("memballoon", model="none")
    if not any(device.WhichOneof("kind") == "input" and device.input.bus != "virtio" for device in devices):
        draft.device("controller", type="usb", index=0, model="none")


def _add_device(draft: Draft, device: Device, kind: str, path: str) -> None:
    match kind:
        case "balloon":
            draft.device(
                "memballoon",
                pci(0, addresses.SLOTS["balloon"]),
                model="virtio-non-transitional",
                autodeflate="on",
                freePageReporting="on" if device.balloon.free_page_reporting else "",
            )
        case "rng":
            source = element("backend", text="/dev/urandom", model="random")
            draft.device("rng", source, pci(0, addresses.SLOTS["rng"]), model="virtio-non-transitional")
        case "panic":
            if device.panic.model not in ("", "isa"):
                draft.refuse("VALUE_NOT_IN_SET", f"{path}.panic.model", "use isa", have="isa")
            draft.device("panic", model="isa")
        case "input":
            _add_tablet(draft, device, path)
        case other:
            draft.refuse("CAP_NO", f"{path}.{other}", f"{other or 'an empty device'} is not supported")


def _add_tablet(draft: Draft, device: Device, path: str) -> None:
    if device.input.type != "tablet":
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.input.type", "use tablet", have="tablet", want=device.input.type[:40])
    match device.input.bus:
        case "virtio":
            draft.device("input", pci(0, addresses.SLOTS["input"]), type="tablet", bus="virtio")
        case "" | "usb":
            draft.device("controller", pci(0, addresses.SLOTS["usb"]), type="usb", index=0, model="qemu-xhci")
            draft.device("input", type="tablet", bus="usb")
        case other:
            draft.refuse(
                "VALUE_NOT_IN_SET", f"{path}.input.bus", "use usb or virtio", have="usb, virtio", want=other[:40]
            )

"""Network interfaces: taps by descriptor, or QEMU's own user-space network."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Final

from anyvisor.drivers.qemu.translate import addresses
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.hri.kit import ports as pci_ports
from anyvisor.hri.kit.drafts import Json
from anyvisor.hri.v1.machine_spec_pb2 import Nic, PortForward, TapBackend, UserBackend

MODELS: Final = {
    Nic.MODEL_UNSPECIFIED: "virtio-net-pci-non-transitional",
    Nic.MODEL_VIRTIO: "virtio-net-pci-non-transitional",
    Nic.MODEL_E1000: "e1000",
    Nic.MODEL_E1000E: "e1000e",
    Nic.MODEL_NE2K_PCI: "ne2k_pci",
    Nic.MODEL_PCNET: "pcnet",
    Nic.MODEL_RTL8139: "rtl8139",
}
NIC_PREFIX: Final = "nic-"
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
MAX_QUEUES: Final = 64
LOOPBACK_OPEN: Final = (
    "the guest reaches what listens on this machine's loopback (127.0.0.1) through the user-mode network, which has no "
    "switch against that alone; run as root, or set the class's parameter userNetwork to isolated"
)
PROTOCOLS: Final = {PortForward.PROTOCOL_TCP: "tcp", PortForward.PROTOCOL_UDP: "udp"}


def nic_device(nic_id: str) -> str:
    """The id of a NIC's device, by which commands name it."""
    return f"{NIC_PREFIX}{nic_id}"


def netdev(nic_id: str) -> str:
    """The id of a NIC's back end."""
    return f"net-{nic_id}"


def add_nics(
    draft: Draft, nics: Sequence[Nic], buses: Mapping[str, int], boot: Mapping[str, int], *, isolated: bool = False
) -> None:
    """All network interfaces, in the machine's order. `isolated`: what is on the user-mode network stays in it."""
    for index, nic in enumerate(nics):
        add_nic(draft, nic, f"nics[{index}]", buses[nic.id], boot.get(nic.id), isolated=isolated)
        if nic.HasField("user") and not isolated:
            draft.note("IGNORED", f"nics[{index}].user", LOOPBACK_OPEN, severity="warn")


def add_nic(draft: Draft, nic: Nic, path: str, bus: int, boot_index: int | None, *, isolated: bool = False) -> None:
    """One network interface, behind the root port `bus`."""
    model = MODELS.get(nic.model)
    if model is None:
        draft.refuse("CAP_NO", f"{path}.model", "this model is not supported; use virtio, e1000e or e1000")
        return
    if not _MAC.fullmatch(nic.mac.lower()):
        draft.refuse("VALUE_INVALID", f"{path}.mac", "a MAC address has the form aa:bb:cc:dd:ee:ff", have=nic.mac)
        return
    backend = _backend(draft, nic, path)
    if backend is None:
        return
    if isolated and nic.HasField("user"):
        backend["restrict"] = True
    draft.json("netdev", {"id": netdev(nic.id), **backend})
    properties = _properties(nic, netdev(nic.id), boot_index)
    draft.device(nic_device(nic.id), model, addresses.behind(bus), properties)
    draft.plug(nic.id, pci_ports.address(bus))


def _backend(draft: Draft, nic: Nic, path: str) -> dict[str, Json] | None:
    match nic.WhichOneof("backend"):
        case "tap":
            return _tap(draft, nic.tap, path)
        case "user":
            return _user(draft, nic.user, path)
        case None:
            draft.refuse("FIELD_MISSING", path, "a network interface needs a back end")
        case other:
            draft.refuse("CAP_NO", f"{path}.{other}", "this back end is not supported; use tap or user")
    return None


def _tap(draft: Draft, tap: TapBackend, path: str) -> dict[str, Json] | None:
    if not 1 <= len(tap.handles) <= MAX_QUEUES:
        draft.refuse("LIMIT_EXCEEDED", f"{path}.tap.handles", f"a tap has 1 to {MAX_QUEUES} queues")
        return None
    backend: dict[str, Json] = {"type": "tap"}
    numbers = ":".join(draft.descriptor(handle) for handle in tap.handles)
    backend["fds" if len(tap.handles) > 1 else "fd"] = numbers
    if tap.vhost_handles:
        if len(tap.vhost_handles) != len(tap.handles):
            draft.refuse("VALUE_INVALID", f"{path}.tap.vhost_handles", "as many as queues, or none")
            return None
        backend["vhost"] = True
        backend["vhostfds" if len(tap.handles) > 1 else "vhostfd"] = ":".join(
            draft.descriptor(handle) for handle in tap.vhost_handles
        )
    return backend


def _user(draft: Draft, user: UserBackend, path: str) -> dict[str, Json] | None:
    try:
        network = ipaddress.IPv4Network(user.network)
        gateway, guest, resolver = network[1], network[2], network[3]
    except (ValueError, IndexError):
        draft.refuse(
            "VALUE_INVALID",
            f"{path}.user.network",
            "an IPv4 network of at least 8 addresses is needed",
            have=user.network,
        )
        return None
    forwards = [_forward(draft, forward, f"{path}.user.forwards[{i}]") for i, forward in enumerate(user.forwards)]
    backend: dict[str, Json] = {
        "type": "user",
        "net": str(network),
        "host": str(gateway),
        "dhcpstart": str(guest),
        "dns": str(resolver),
        "ipv6": False,
    }
    if user.hostname:
        backend["hostname"] = user.hostname
    if forwards:
        backend["hostfwd"] = [{"str": forward} for forward in forwards]
    if user.dns_search:
        backend["dnssearch"] = [{"str": domain} for domain in user.dns_search]
    return backend


def _forward(draft: Draft, forward: PortForward, path: str) -> str:
    protocol = PROTOCOLS.get(forward.protocol, "")
    ports_good = forward.host_port < 1 << 16 and 0 < forward.guest_port < 1 << 16
    try:
        host = str(ipaddress.IPv4Address(forward.host_address or "0.0.0.0"))
    except ValueError:
        host = ""
    if not (protocol and ports_good and host):
        draft.refuse("VALUE_INVALID", path, "a forward needs tcp or udp, an IPv4 host address and ports below 65536")
    return f"{protocol}:{host}:{forward.host_port}-:{forward.guest_port}"


def _properties(nic: Nic, backend: str, boot_index: int | None) -> dict[str, Json]:
    queues = max(len(nic.tap.handles), 1)
    virtio = nic.model in (Nic.MODEL_UNSPECIFIED, Nic.MODEL_VIRTIO)
    properties: dict[str, Json] = {"netdev": backend, "mac": nic.mac.lower(), "bootindex": boot_index}
    if boot_index is None:
        properties["romfile"] = ""  # a network boot program that nobody will run costs time and memory
    if virtio:
        properties["host_mtu"] = nic.mtu or None
        if queues > 1:
            properties["mq"] = True
            properties["vectors"] = 2 * queues + 2
    if nic.acpi_index:
        properties["acpi-index"] = nic.acpi_index
    return properties

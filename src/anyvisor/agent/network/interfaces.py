"""What a VMI says about its network, read once. Pure."""

import hashlib
import ipaddress
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from anyvisor.agent.open_error import OpenError
from anyvisor.api.meta import Json, controller_of, list_at, object_at, text_at, uid
from anyvisor.api.meta import name as name_of
from anyvisor.api.names import secondary_interface
from anyvisor.hri.v1.machine_spec_pb2 import Nic

POD_INTERFACE: Final = "eth0"
"""The pod's own interface, as every container network plug-in calls it."""
DEFAULT_NETWORK: Final = "10.0.2.0/24"
"""The guest's own network behind the translation, the same for every guest (KubeVirt's default)."""
MIN_ADDRESSES: Final = 8
MAX_QUEUES: Final = 16
ABSENT: Final = "absent"
"""State of an interface that the guest does not have, or no longer."""
MODELS: Final = {
    "": Nic.MODEL_VIRTIO,
    "virtio": Nic.MODEL_VIRTIO,
    "e1000": Nic.MODEL_E1000,
    "e1000e": Nic.MODEL_E1000E,
    "igb": Nic.MODEL_IGB,
    "ne2k_pci": Nic.MODEL_NE2K_PCI,
    "pcnet": Nic.MODEL_PCNET,
    "rtl8139": Nic.MODEL_RTL8139,
}
_MAC: Final = re.compile(r"[0-9a-f]{2}([:-][0-9a-f]{2}){5}")


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the pod's address that reaches the guest."""

    protocol: str
    number: int


@dataclass(frozen=True, slots=True)
class DhcpExtras:
    """What DHCP tells the guest beside its address."""

    boot_file: str = ""
    tftp_server: str = ""
    ntp_servers: tuple[IPv4Address, ...] = ()
    private: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface: on the pod's own network or on a further one, behind address translation or bridged."""

    name: str
    model: Nic.Model
    mac: str
    network: IPv4Network
    ports: tuple[Port, ...] = ()
    """Empty = all."""
    queues: int = 1
    link_down: bool = False
    pci_address: str = ""
    acpi_index: int = 0
    dhcp: DhcpExtras = DhcpExtras()
    bridged: bool = False
    """Whether the guest itself is on the network, instead of behind translation."""
    pod_interface: str = POD_INTERFACE
    """The pod's interface on the network."""
    tap: str = "tap0"
    """The guest's link inside the pod."""
    bridge: str = ""
    """Joins the two where the interface is bridged."""

    @property
    def secondary(self) -> bool:
        """Whether the network is not the pod's own."""
        return self.pod_interface != POD_INTERFACE

    @property
    def gateway(self) -> IPv4Address:
        """Our end."""
        return self.network[1]

    @property
    def guest(self) -> IPv4Address:
        """The guest's address."""
        return self.network[2]


def read(vmi: Json, *, leaving: bool = False) -> list[Interface]:
    """The interfaces that the guest gets, with those that are to leave it if `leaving`.

    Raises OpenError for one that cannot be served.
    """
    networks = {str(network.get("name")): network for network in list_at(vmi, "spec", "networks")}
    found: list[Interface] = []
    for index, interface in enumerate(list_at(vmi, "spec", "domain", "devices", "interfaces")):
        if interface.get("state") == ABSENT and not leaving:
            continue
        at = f"spec.domain.devices.interfaces[{index}]"
        network = networks.get(str(interface.get("name")))
        if network is None or not ("pod" in network or "multus" in network):
            why = "only the pod network and networks by NetworkAttachmentDefinition are served: use `pod` or `multus`"
            raise OpenError(at, "NetworkNotSupported", why, retry=False)
        _check_binding(interface, network, at)
        if "pod" in network and any(not each.secondary for each in found):
            why = "a guest has one interface on the pod network; take one away"
            raise OpenError(at, "NetworkNotSupported", why, retry=False)
        found.append(_interface(vmi, interface, network, at))
    return found


def _check_binding(interface: Json, network: Json, at: str) -> None:
    if "bridge" in interface or ("masquerade" in interface and "pod" in network):
        return
    if "masquerade" in interface:
        why = "masquerade is for the pod network: use `bridge: {}`"
    else:
        why = "only the bindings masquerade and bridge are served: use one of them"
    raise OpenError(at, "BindingNotSupported", why, retry=False)


def _interface(vmi: Json, interface: Json, network: Json, at: str) -> Interface:
    model = str(interface.get("model") or "")
    if model not in MODELS:
        raise OpenError(
            f"{at}.model", "ModelNotSupported", f"there is no model {model!r}; use virtio or e1000e", retry=False
        )
    name = str(interface["name"])
    pod_interface = secondary_interface(name) if "multus" in network else POD_INTERFACE
    bridged = "bridge" in interface
    return Interface(
        name=name,
        model=MODELS[model],
        mac=mac_address(vmi, interface, at),
        network=_network(network, at),
        ports=_ports(interface, at),
        queues=_queues(vmi) if MODELS[model] == Nic.MODEL_VIRTIO else 1,
        link_down=interface.get("state") == "down",
        pci_address=str(interface.get("pciAddress") or ""),
        acpi_index=int(interface.get("acpiIndex") or 0),
        dhcp=_dhcp_extras(interface, at),
        bridged=bridged,
        pod_interface=pod_interface,
        tap=f"tap{_tail(pod_interface)}",
        bridge=bridge_name(pod_interface) if bridged else "",
    )


def _tail(pod_interface: str) -> str:
    return "0" if pod_interface == POD_INTERFACE else pod_interface.removeprefix("pod")


def bridge_name(pod_interface: str) -> str:
    """The bridge between a pod's interface and the guest's link."""
    return f"br{_tail(pod_interface)}"


def mac_address(vmi: Json, interface: Json, at: str) -> str:
    """The address that the spec names, else one that is always the same for this VM and interface."""
    wanted = str(interface.get("macAddress") or "").lower()
    if wanted:
        if not _MAC.fullmatch(wanted):
            raise OpenError(
                f"{at}.macAddress",
                "MacAddressInvalid",
                f"{wanted!r} is no MAC address; write 6 bytes, such as 02:00:00:12:34:56",
                retry=False,
            )
        return wanted.replace("-", ":")
    owner = str((controller_of(vmi) or {}).get("uid") or uid(vmi))
    digest = hashlib.sha256(f"{owner}/{interface.get('name')}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:5]))  # locally administered, unicast


def _network(network: Json, at: str) -> IPv4Network:
    text = text_at(network, "pod", "vmNetworkCIDR") or DEFAULT_NETWORK
    try:
        parsed = ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        parsed = None
    if parsed is None or parsed.num_addresses < MIN_ADDRESSES:
        raise OpenError(
            at, "NetworkInvalid", f"vmNetworkCIDR {text!r} is no IPv4 network of at least 8 addresses", retry=False
        )
    return parsed


def _ports(interface: Json, at: str) -> tuple[Port, ...]:
    found: list[Port] = []
    for index, port in enumerate(interface.get("ports") or ()):
        protocol = str(port.get("protocol") or "TCP").lower()
        number = int(port.get("port") or 0)
        if protocol not in ("tcp", "udp", "sctp") or not 0 < number < 1 << 16:
            raise OpenError(
                f"{at}.ports[{index}]",
                "PortInvalid",
                "a port is a number from 1 to 65535, by TCP, UDP or SCTP",
                retry=False,
            )
        found.append(Port(protocol, number))
    return tuple(found)


def _queues(vmi: Json) -> int:
    if not object_at(vmi, "spec", "domain", "devices").get("networkInterfaceMultiqueue"):
        return 1
    cpu = object_at(vmi, "spec", "domain", "cpu")
    vcpus = 1
    for part in ("sockets", "cores", "threads"):
        vcpus *= int(cpu.get(part) or 1)
    return min(vcpus, MAX_QUEUES)


def _dhcp_extras(interface: Json, at: str) -> DhcpExtras:
    options = object_at(interface, "dhcpOptions")
    try:
        servers = tuple(IPv4Address(str(server)) for server in options.get("ntpServers") or ())
    except ValueError as error:
        raise OpenError(
            f"{at}.dhcpOptions.ntpServers", "DhcpOptionsInvalid", f"an IPv4 address is needed: {error}", retry=False
        ) from error
    return DhcpExtras(
        boot_file=str(options.get("bootFileName") or ""),
        tftp_server=str(options.get("tftpServerName") or ""),
        ntp_servers=servers,
        private=tuple(
            (int(option.get("option") or 0), str(option.get("value") or ""))
            for option in options.get("privateOptions") or ()
        ),
    )


def hostname(vmi: Json) -> str:
    """What the guest is called."""
    return text_at(vmi, "spec", "hostname") or name_of(vmi)

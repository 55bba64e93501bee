"""The bridge binding: the guest itself is on the pod's network, with a bridge between its link and the pod's interface.

On the pod's own network, the guest takes the pod's address over, which DHCP tells it; what the pod had is noted at its
interface (`ip link ... alias`), where it is found again after a restart of the agent, and goes with the namespace.
"""

import contextlib
import json
import os
import socket
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Interface, IPv4Network, NetmaskValueError
from typing import Any, Final

from anyvisor.agent.network import namespace
from anyvisor.agent.network.interfaces import Interface

DHCP_ADDRESS: Final = IPv4Address("169.254.75.10")
"""Ours on the bridge, from which DHCP answers (link-local, as the guest has the pod's)."""
_EVERYWHERE: Final = IPv4Network("0.0.0.0/0")
_ON_LINK: Final = IPv4Address(0)


@dataclass(frozen=True, slots=True)
class PodAddress:
    """What the pod's interface had before the guest took it over."""

    own: IPv4Interface
    gateway: IPv4Address | None

    def note(self) -> str:
        """As it is kept in the interface's alias."""
        return f"{self.own},{self.gateway or ''}"

    def routes(self) -> tuple[tuple[IPv4Network, IPv4Address], ...]:
        """What a guest must be told where the router is not on its network; nothing where it is."""
        if self.gateway is None or self.gateway in self.own.network:
            return ()
        return (IPv4Network(self.gateway), _ON_LINK), (_EVERYWHERE, self.gateway)


def parse_note(text: str) -> PodAddress | None:
    """Read an alias of ours; None for every other one."""
    own, comma, gateway = text.partition(",")
    try:
        return PodAddress(IPv4Interface(own), IPv4Address(gateway) if gateway else None) if comma else None
    except (AddressValueError, NetmaskValueError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Bridged:
    """What the work inside the namespace brings back."""

    taps: list[int]
    mtu: int
    address: PodAddress | None
    """None where the network gives the pod no address: then the guest's comes from elsewhere."""
    dhcp: socket.socket | None

    def close(self) -> None:
        """Give it back."""
        for descriptor in self.taps:
            os.close(descriptor)
        if self.dhcp is not None:
            self.dhcp.close()


def links(interface: Interface, mtu: int, address: PodAddress | None, *, exists: bool, mac: str) -> str:
    """Text for `ip -batch`. A bridge with two ports need not learn: what comes in at one goes out at the other."""
    bridge, pod, tap = interface.bridge, interface.pod_interface, interface.tap
    lines = [] if exists else [f"link add name {bridge} type bridge"]
    if address is not None:
        lines += [f"link set {pod} alias {address.note()}", f"addr add {DHCP_ADDRESS}/32 dev {bridge}"]
        if exists:
            lines[-1] = f"addr replace {DHCP_ADDRESS}/32 dev {bridge}"
    lines += [
        f"link set {bridge} type bridge stp_state 0 forward_delay 0 ageing_time 0 mcast_snooping 0",
        f"link set {bridge} addrgenmode none mtu {mtu}",
        # The guest has the address that the network knows, so the pod's interface needs another one.
        f"link set {pod} address {mac}",
        f"addr flush dev {pod}",
        f"link set {pod} master {bridge}",
        f"link set {tap} addrgenmode none mtu {mtu} master {bridge}",
        *(f"link set {each} up" for each in (pod, tap, bridge)),
    ]
    return "\n".join((*lines, ""))


def other_mac(mac: str) -> str:
    """Another address than the guest's, always the same: locally administered, unicast."""
    octets = [int(part, 16) for part in mac.split(":")]
    octets[0] = octets[0] & 0xFC | 0x02
    octets[5] ^= 0x80
    return ":".join(f"{octet:02x}" for octet in octets)


def open_bridged(interface: Interface, *, adopted: bool) -> Bridged:
    """Runs inside the namespace, in a thread of its own."""
    pod = interface.pod_interface
    mtu = namespace.mtu_of(pod)
    address = _address(pod)
    with contextlib.ExitStack() as undo:
        taps: list[int] = []
        if not adopted:
            taps = namespace.open_tap(interface.tap, interface.queues)
            for descriptor in taps:
                undo.callback(os.close, descriptor)
            exists = namespace.exists(interface.bridge)
            namespace.run_ip(links(interface, mtu, address, exists=exists, mac=other_mac(interface.mac)))
        dhcp = undo.enter_context(namespace.dhcp_socket(interface.bridge)) if address is not None else None
        undo.pop_all()
    return Bridged(taps, mtu, address, dhcp)


def _address(pod_interface: str) -> PodAddress | None:
    """What the interface has, or had."""
    shown, linked = namespace.run_tools(
        (("ip", "-4", "-j", "addr", "show", "dev", pod_interface), ""),
        (("ip", "-j", "link", "show", "dev", pod_interface), ""),
    )
    noted = parse_note(next((str(each["ifalias"]) for each in _entries(linked, "ifalias")), ""))
    if noted is not None:
        return noted
    known = [each for link in _entries(shown, "addr_info") for each in link["addr_info"]]
    own = next((each for each in known if each.get("scope") == "global"), None)
    if own is None:
        return None
    [routes] = namespace.run_tools((("ip", "-4", "-j", "route", "show", "default", "dev", pod_interface), ""))
    gateway = next((str(each["gateway"]) for each in _entries(routes, "gateway")), "")
    interface = IPv4Interface(f"{own['local']}/{own['prefixlen']}")
    return PodAddress(interface, IPv4Address(gateway) if gateway else None)


def _entries(text: str, key: str) -> list[dict[str, Any]]:
    """The objects of a tool's answer that have the key; it prints empty ones for what is filtered out."""
    found: list[dict[str, Any]] = json.loads(text or "[]")
    return [each for each in found if key in each]

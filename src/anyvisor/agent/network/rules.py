"""What is configured inside a pod's network namespace, as text for `ip -batch` and `nft -f`. Pure."""

from typing import Final

from anyvisor.agent.network.interfaces import POD_INTERFACE, Interface

TABLE: Final = "anyvisor"
GATEWAY_MAC: Final = "02:00:00:00:00:00"
"""The same everywhere, so that the guest's neighbour table stays right wherever it goes on."""
PROTOCOLS: Final = ("tcp", "udp", "sctp")


def links(interface: Interface, mtu: int) -> str:
    """Our end of the guest's link: the gateway's address on the tap."""
    return "\n".join(
        (
            "link set lo up",
            f"link set {interface.tap} address {GATEWAY_MAC} mtu {mtu} addrgenmode none",
            f"addr replace {interface.gateway}/{interface.network.prefixlen} dev {interface.tap}",
            f"link set {interface.tap} up",
            "",
        )
    )


def translation(interface: Interface) -> str:
    """The pod's address stands for the guest: out by masquerade, in by the ports (all, when none is named).

    Replaces the whole table in one transaction, so it can be loaded again.
    """
    return f"""
table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
{_inbound(interface)}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {interface.guest} oifname "{POD_INTERFACE}" masquerade
  }}
}}
"""


def _inbound(interface: Interface) -> str:
    from_outside = f'    iifname "{POD_INTERFACE}"'
    if not interface.ports:
        return f"{from_outside} dnat to {interface.guest}"
    lines: list[str] = []
    for protocol in PROTOCOLS:
        numbers = sorted({port.number for port in interface.ports if port.protocol == protocol})
        if numbers:
            ports = ", ".join(str(number) for number in numbers)
            lines.append(f"{from_outside} {protocol} dport {{ {ports} }} dnat to {interface.guest}")
    return "\n".join(lines)

"""What the embedded container network decides before it touches anything: names, networks, texts for tools. Pure."""

import hashlib
from collections.abc import Collection, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from anyvisor.agent.network.interfaces import POD_INTERFACE

POOL: Final = IPv4Network("10.64.0.0/10")
"""Where instances take their networks from; away from the ranges that cluster tools take by default."""
PREFIX: Final = 22
BRIDGE: Final = "avb"


class PodNetworkError(OSError):
    """A pod's network cannot be made; the message is a sentence for the pod."""


def bridge_name(instance: str) -> str:
    """The instance's bridge."""
    return f"{BRIDGE}{instance[:8]}"


def name_prefix(instance: str) -> str:
    """How the names of the instance's namespaces begin."""
    return f"av{instance[:6]}"


def pod_name(instance: str, key: str) -> str:
    """A namespace, and its link on the host: at most 15 characters."""
    return name_prefix(instance) + hashlib.sha256(key.encode()).hexdigest()[:7]


def table_name(instance: str) -> str:
    """The instance's table of address translation."""
    return f"anyvisor_{instance[:8]}"


def services_table_name(instance: str) -> str:
    """The instance's table of Services; apart, as it changes with them."""
    return f"{table_name(instance)}_services"


def choose_network(instance: str, taken: Sequence[IPv4Network]) -> IPv4Network:
    """A network for the instance that overlaps none of those that the host knows; always the same where it can."""
    count = 1 << (PREFIX - POOL.prefixlen)
    first = int.from_bytes(hashlib.sha256(instance.encode()).digest()[:4], "big") % count
    for step in range(count):
        start = int(POOL[0]) + ((first + step) % count << (32 - PREFIX))
        candidate = IPv4Network((start, PREFIX))
        if not any(candidate.overlaps(each) for each in taken):
            return candidate
    raise PodNetworkError(f"no network is free for pods in {POOL}; remove routes that nobody needs")


def choose_address(network: IPv4Network, taken: Collection[str]) -> IPv4Address:
    """A free address: neither the network's, the bridge's nor the broadcast address."""
    for number in range(2, network.num_addresses - 1):
        if str(network[number]) not in taken:
            return network[number]
    raise PodNetworkError(f"all {network.num_addresses - 3} addresses for pods are taken; delete virtual machines")


def bridge_batch(instance: str, network: IPv4Network, *, exists: bool, services: IPv4Network | None = None) -> str:
    """Make the bridge, or set it up again. Cluster IPs lead to it, so that the host has a way to them."""
    name = bridge_name(instance)
    lines = [] if exists else [f"link add name {name} type bridge"]
    lines += [
        f"addr replace {network[1]}/{network.prefixlen} dev {name}",
        f"link set {name} addrgenmode none",
        f"link set {name} up",
    ]
    if services is not None:
        lines.append(f"route replace {services} dev {name} src {network[1]}")
    return "\n".join((*lines, ""))


def masquerade(instance: str, network: IPv4Network) -> str:
    """Pods reach the outside as the host does. Replaces the table as a whole."""
    table, bridge = table_name(instance), bridge_name(instance)
    return f"""
table ip {table}
delete table ip {table}
table ip {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {network} oifname != "{bridge}" masquerade
  }}
  chain loopback {{
    type filter hook prerouting priority raw; policy accept;
    iifname "{bridge}" ip daddr 127.0.0.0/8 drop
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
    oifname "{bridge}" icmp type redirect drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{bridge}" accept
    oifname "{bridge}" accept
  }}
}}
"""


def pod_batch(instance: str, name: str, mtu: int) -> str:
    """A pod's namespace and its link to the bridge."""
    return "\n".join(
        (
            f"netns add {name}",
            f"link add {name} mtu {mtu} type veth peer name {POD_INTERFACE} mtu {mtu} netns {name}",
            f"link set {name} master {bridge_name(instance)} addrgenmode none",
            # Where br_netfilter is loaded, what a pod sends itself by a Service goes back through its own port.
            f"link set {name} type bridge_slave hairpin on",
            f"link set {name} up",
            "",
        )
    )


def inner_batch(address: IPv4Address | str, network: IPv4Network) -> str:
    """The same from within the pod's namespace.

    The pod knows no neighbour but the host, so that the host sees both ways of a connection between pods: the answer
    of a Service comes from the address that was asked.
    """
    return "\n".join(
        (
            "link set lo up",
            f"addr add {address}/32 dev {POD_INTERFACE}",
            f"link set {POD_INTERFACE} up",
            f"route add {network[1]} dev {POD_INTERFACE} scope link",
            f"route add default via {network[1]}",
            "",
        )
    )

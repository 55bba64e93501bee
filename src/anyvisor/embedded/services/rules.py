"""The packet rules of all Services of one instance, as text for `nft -f`. Pure.

One transaction replaces the table as a whole, so that no packet ever sees half of it; connections that are open keep
their way. Addresses and ports are looked up in maps, so the cost of a packet does not grow with the Services.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from anyvisor.embedded.services.targets import ServedPort, Target

_KEY: Final = "ip daddr . meta l4proto . th dport"
_NODE_KEY: Final = "meta l4proto . th dport"


@dataclass(frozen=True, slots=True)
class Ground:
    """Where the rules stand."""

    table: str
    bridge: str
    pods: IPv4Network
    services: IPv4Network
    dns_port: int = 0
    """Where the instance's name server listens on the bridge's address; 0 = there is none."""

    @property
    def host(self) -> IPv4Address:
        """The host's address among the pods."""
        return self.pods[1]


def ruleset(ground: Ground, ports: Sequence[ServedPort]) -> str:
    """Everything, for `nft -f`."""
    chains: list[str] = []
    by_address: list[str] = []
    by_node_port: list[str] = []
    closed_node_ports: list[str] = []
    hairpins: set[IPv4Address] = set()
    for number, port in enumerate(ports):
        chain = f"port_{number}"
        if not port.targets:
            if port.node_port:
                closed_node_ports.append(f"{port.protocol} . {port.node_port}")
            continue
        chains.append(_chain(chain, port))
        hairpins.update(target.address for target in port.targets)
        by_address += [f"{address} . {port.protocol} . {port.port} : goto {chain}" for address in port.addresses]
        if port.node_port:
            by_node_port.append(f"{port.protocol} . {port.node_port} : goto {chain}")
    pairs = [f"{address} . {address}" for address in sorted(hairpins)]
    parts = (
        _set("map by_address", "ipv4_addr . inet_proto . inet_service : verdict", by_address),
        _set("map by_node_port", "inet_proto . inet_service : verdict", by_node_port),
        _set("set closed_node_ports", "inet_proto . inet_service", closed_node_ports),
        _set("set hairpins", "ipv4_addr . ipv4_addr", pairs),
        *chains,
        _ways(ground),
    )
    table = ground.table
    return f"table ip {table}\ndelete table ip {table}\ntable ip {table} {{\n{''.join(parts)}}}\n"


def _set(head: str, kind: str, elements: Sequence[str]) -> str:
    listed = f"    elements = {{ {', '.join(dict.fromkeys(elements))} }}\n" if elements else ""
    return f"  {head} {{\n    type {kind}\n{listed}  }}\n"


def _chain(name: str, port: ServedPort) -> str:
    """Send a new connection to one of the targets: in turn by chance, or always the same for a client."""
    return f"  chain {name} {{\n    {_choice(port)}\n  }}\n"


def _choice(port: ServedPort) -> str:
    way = f"meta l4proto {port.protocol} dnat ip to"
    if len(port.targets) == 1:
        return f"{way} {_place(port.targets[0], ':')}"
    count = len(port.targets)
    number = f"jhash ip saddr mod {count} seed 0x616e7976" if port.sticky else f"numgen random mod {count}"
    listed = ", ".join(f"{index} : {_place(target, ' . ')}" for index, target in enumerate(port.targets))
    return f"meta l4proto {port.protocol} dnat ip addr . port to {number} map {{ {listed} }}"


def _place(target: Target, between: str) -> str:
    return f"{target.address}{between}{target.port}"


def _ways(ground: Ground) -> str:
    """Where packets are looked at.

    A guest that reaches itself by a Service must see another sender than itself; a packet from the host's loopback
    cannot leave the host. All others keep their sender. What no port took and is still for a cluster IP is refused.
    """
    dns = ""
    if ground.dns_port:
        to_dns = f'    iifname "{ground.bridge}" ip daddr {ground.host}'
        dns = "".join(f"{to_dns} {each} dport 53 redirect to :{ground.dns_port}\n" for each in ("udp", "tcp"))
    return f"""  chain services {{
    {_KEY} vmap @by_address
    fib daddr type local {_NODE_KEY} vmap @by_node_port
  }}
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
{dns}    jump services
  }}
  chain output {{
    type nat hook output priority -100; policy accept;
    jump services
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat - 5; policy accept;
    ct status dnat ip saddr . ip daddr @hairpins masquerade
    ct status dnat ip saddr 127.0.0.0/8 ip daddr {ground.pods} masquerade
  }}
  chain refuse {{
    ip daddr {ground.services} meta l4proto tcp reject with tcp reset
    ip daddr {ground.services} reject
  }}
  chain refuse_forwarded {{
    type filter hook forward priority filter - 5; policy accept;
    jump refuse
  }}
  chain refuse_own {{
    type filter hook output priority filter - 5; policy accept;
    jump refuse
  }}
  chain refuse_local {{
    type filter hook input priority filter - 5; policy accept;
    {_NODE_KEY} @closed_node_ports meta l4proto tcp reject with tcp reset
    {_NODE_KEY} @closed_node_ports reject
  }}
"""

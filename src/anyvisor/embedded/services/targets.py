"""What is served where: Services and their EndpointSlices, read once. Pure; what cannot be read is left out."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, text_at

HEADLESS: Final = "None"
PROTOCOLS: Final = ("tcp", "udp", "sctp")
_WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """Where a packet ends up."""

    address: IPv4Address
    port: int


@dataclass(frozen=True, slots=True)
class ServedPort:
    """One port of one Service."""

    addresses: tuple[IPv4Address, ...]
    """The cluster IP, and further addresses of the Service."""
    protocol: str
    port: int
    node_port: int
    """0 = none."""
    sticky: bool
    """Whether a client always gets the same target."""
    targets: tuple[Target, ...]


def served(service: Json, slices: Iterable[Json]) -> list[ServedPort]:
    """The ports of a Service that packets are to reach; none for one that is headless or has an external name."""
    spec = object_at(service, "spec")
    if spec.get("type") == "ExternalName" or spec.get("clusterIP") in (None, "", HEADLESS):
        return []
    found: list[ServedPort] = []
    addresses = _addresses([spec.get("clusterIP"), *(spec.get("externalIPs") or [])])
    slices = list(slices)
    for port in list_at(spec, "ports"):
        protocol = str(port.get("protocol") or "TCP").lower()
        number, node_port = _port(port.get("port")), _port(port.get("nodePort"))
        if addresses and number and protocol in PROTOCOLS:
            targets = _targets(slices, str(port.get("name") or ""), protocol)
            sticky = spec.get("sessionAffinity") == "ClientIP"
            node_port = node_port if spec.get("type") in _WITH_NODE_PORTS else 0
            found.append(ServedPort(addresses, protocol, number, node_port, sticky, targets))
    return found


def _targets(slices: Iterable[Json], name: str, protocol: str) -> tuple[Target, ...]:
    """Those that are ready; where none is, those that still serve while they end (KEP-1669)."""
    ready: set[Target] = set()
    ending: set[Target] = set()
    for each in slices:
        for port in list_at(each, "ports"):
            number = _port(port.get("port"))
            if str(port.get("name") or "") != name or str(port.get("protocol") or "TCP").lower() != protocol:
                continue
            for endpoint in list_at(each, "endpoints"):
                conditions = object_at(endpoint, "conditions")
                addresses = _addresses(endpoint.get("addresses") or [])[:1]
                found = {Target(address, number) for address in addresses if number}
                if conditions.get("ready") is not False:
                    ready |= found
                elif conditions.get("serving") and conditions.get("terminating"):
                    ending |= found
    return tuple(sorted(ready or ending))


def endpoint_addresses(slices: Iterable[Json]) -> list[tuple[str, IPv4Address]]:
    """(hostname, address) of each ready endpoint, for names."""
    return [
        (text_at(endpoint, "hostname"), address)
        for each in slices
        for endpoint in list_at(each, "endpoints")
        if object_at(endpoint, "conditions").get("ready") is not False
        for address in _addresses(endpoint.get("addresses") or [])
    ]


def _addresses(texts: Iterable[object]) -> tuple[IPv4Address, ...]:
    found: list[IPv4Address] = []
    for text in texts:
        try:
            found.append(ipaddress.IPv4Address(str(text)))
        except ValueError:
            continue
    return tuple(found)


def _port(value: object) -> int:
    return value if isinstance(value, int) and 0 < value < 1 << 16 else 0

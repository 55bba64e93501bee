"""The names of Services, and of machines behind headless ones. Pure.

Kubernetes' DNS specification 1.1.0: https://github.com/kubernetes/dns/blob/master/docs/specification.md
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final, Protocol

from anyvisor.api.meta import Json, list_at, name, namespace, object_at, text_at
from anyvisor.embedded.services import message, targets
from anyvisor.embedded.services.message import NO_ERROR, NO_NAME, Kind, Name, Question, Record

ZONE: Final[Name] = ("cluster", "local")
_REVERSE: Final[Name] = ("in-addr", "arpa")
SPECIFICATION: Final = "1.1.0"


class Services(Protocol):
    """What is known of Services."""

    def service(self, namespace: str, name: str) -> Json | None:
        """One Service."""
        ...

    def slices(self, namespace: str, name: str) -> list[Json]:
        """Its EndpointSlices."""
        ...

    def services(self) -> Iterable[Json]:
        """All Services."""
        ...


@dataclass(frozen=True, slots=True)
class _Service:
    """One Service, as its names need it."""

    owner: Name
    json: Json
    slices: Sequence[Json]

    @property
    def headless(self) -> bool:
        return text_at(self.json, "spec", "clusterIP") == targets.HEADLESS

    def hosts(self) -> list[tuple[Name, IPv4Address]]:
        """The endpoints of a headless Service by their own names: the host's, else its address with dashes."""
        return [
            ((host or str(address).replace(".", "-"), *self.owner), address)
            for host, address in targets.endpoint_addresses(self.slices)
        ]


def resolve(services: Services, name: Name) -> tuple[int, list[Record]] | None:
    """What a name stands for: (code, records of all types); None when it is not of our zones."""
    if name[-2:] == ZONE:
        found = _resolve(services, name, name[:-2])
        return (NO_NAME, []) if found is None else (NO_ERROR, found)
    if name[-2:] == _REVERSE:
        found = _reverse(services, name)
        return None if found is None else (NO_ERROR, found)
    return None


def answer(services: Services, question: Question, limit: int) -> bytes | None:
    """The reply to a query; None when it is not for us."""
    found = resolve(services, question.name)
    if found is None:
        return None
    code, records = found
    chosen = [r for r in records if question.kind in (r.kind, Kind.ANY) or r.kind == Kind.CNAME]
    random.shuffle(chosen)  # who takes the first one spreads itself over all
    return message.answer(question, code, chosen, ZONE, limit)


def _resolve(services: Services, whole: Name, labels: Name) -> list[Record] | None:
    match labels:
        case () | ("svc",) | ("pod",) | (_, "svc") | (_, "pod"):
            return []
        case ("dns-version",):
            return [message.text(whole, SPECIFICATION)]
        case (dashed, _, "pod"):
            return _dashed(whole, dashed)
        case (*host, service_name, space, "svc"):
            service = services.service(space, service_name)
            if service is None:
                return None
            slices = services.slices(space, service_name)
            return _of_service(whole, tuple(host), _Service((service_name, space, "svc", *ZONE), service, slices))
        case _:
            return None


def _of_service(whole: Name, host: Name, service: _Service) -> list[Record] | None:
    spec = object_at(service.json, "spec")
    if spec.get("type") == "ExternalName":
        target = tuple(str(spec.get("externalName") or "").rstrip(".").lower().split("."))
        good = all(0 < len(label) < 64 for label in target)
        return [message.alias(whole, target)] if not host and good else None
    match host:
        case ():
            return [message.address(whole, each) for each in _addresses(service)]
        case (port, protocol) if port.startswith("_") and protocol.startswith("_"):
            return _ports(whole, port[1:], protocol[1:], service)
        case (_,):
            found = [message.address(whole, each) for own, each in service.hosts() if own == whole]
            return found or None
        case _:
            return None


def _addresses(service: _Service) -> list[IPv4Address]:
    if service.headless:
        return [address for _, address in service.hosts()]
    text = text_at(service.json, "spec", "clusterIP")
    return [IPv4Address(text)] if text else []


def _ports(whole: Name, port_name: str, protocol: str, service: _Service) -> list[Record] | None:
    if not service.headless:
        found = [
            message.service(whole, int(port["port"]), service.owner)
            for port in list_at(service.json, "spec", "ports")
            if _is_port(port, port_name, protocol)
        ]
        return found or None
    numbers = {
        int(port["port"])
        for each in service.slices
        for port in list_at(each, "ports")
        if _is_port(port, port_name, protocol)
    }
    return [message.service(whole, number, host) for number in sorted(numbers) for host, _ in service.hosts()] or None


def _is_port(port: Json, wanted: str, protocol: str) -> bool:
    return str(port.get("name") or "") == wanted and str(port.get("protocol") or "TCP").lower() == protocol


def _dashed(whole: Name, text: str) -> list[Record] | None:
    try:
        return [message.address(whole, IPv4Address(text.replace("-", ".")))]
    except ValueError:
        return None


def _reverse(services: Services, whole: Name) -> list[Record] | None:
    """Which name an address has; None for addresses that are no Service's and no machine's with a name."""
    try:
        wanted = IPv4Address(".".join(reversed(whole[:-2])))
    except ValueError:
        return None
    for each in services.services():
        owner: Name = (name(each), namespace(each), "svc", *ZONE)
        if text_at(each, "spec", "clusterIP") == str(wanted):
            return [message.pointer(whole, owner)]
        if text_at(each, "spec", "clusterIP") == targets.HEADLESS:
            service = _Service(owner, each, services.slices(namespace(each), name(each)))
            for host, address in service.hosts():
                if address == wanted:
                    return [message.pointer(whole, host)]
    return None

"""Cluster IPs and node ports of Services: given where none is asked for, and to one Service only.

What is given is written a moment later, so until then it is held here. The upper part of the network is used first
for addresses that nobody chose, so that chosen ones rarely meet them (KEP-3070 does it the same way).
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final, Literal

from anyvisor.embedded.apiserver import service_rules
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.entries import Entry, Key
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.status import Cause, invalid_value
from anyvisor.embedded.apiserver.values import as_objects

Json = dict[str, Any]

STORE: Final = "services"
NODE_PORTS: Final = range(30000, 32768)
CHOSEN_PART: Final = 16
"""Addresses at the network's start that are given only by request, and after all others."""
CHOSEN_PORTS: Final = 86
"""The same for node ports."""
HOLD_SECONDS: Final = 60.0
Taken = set[object]


@dataclass(frozen=True, slots=True)
class _Held:
    """What one write was given that is not stored yet."""

    items: frozenset[object]
    before: Entry | None
    """The Service as it was; once it is another, what is stored counts."""
    until: float


class ServiceAddresses:
    """A mutating plugin."""

    phase: Literal["mutating", "validating"] = "mutating"

    def __init__(self, state: State, network: IPv4Network, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._network = network
        self._clock = clock
        self._held: dict[Key, _Held] = {}

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Complete a Service that is written."""
        if request.resource.store != STORE or request.subresource:
            return ALLOWED
        owner = (request.namespace, request.name)
        if request.operation not in ("CREATE", "UPDATE"):
            self._held.pop(owner, None)
            return ALLOWED
        spec = request.object.get("spec") if request.object is not None else None
        if request.object is None or not isinstance(spec, dict) or service_rules.check(request.object, None):
            return ALLOWED  # its own validation refuses it
        new: Json = {**request.object, "spec": {**spec}}
        causes = [*self._addresses(owner, new["spec"]), *self._ports(owner, new["spec"])]
        if causes:
            return AdmissionResult(causes=causes)
        if not request.dry_run:
            before = self._state.collection(STORE).latest(owner)
            self._held[owner] = _Held(frozenset(_items(new["spec"])), before, self._clock() + HOLD_SECONDS)
        return AdmissionResult(object=new)

    def _addresses(self, owner: Key, spec: Json) -> list[Cause]:
        wanted = str(spec.get("clusterIP") or "")
        if not service_rules.needs_address(spec) or wanted == service_rules.HEADLESS:
            return []
        taken = self._taken(owner)
        if wanted:
            why = self._why_not(IPv4Address(wanted), taken)
            return (
                [invalid_value("spec.clusterIPs", f'["{wanted}"]', f"failed to allocate IP {wanted}: {why}")]
                if why
                else []
            )
        found = next((each for each in self._candidates() if each not in taken), None)
        if found is None:
            why = f"failed to allocate a serviceIP: all of {self._network} are taken; delete Services"
            return [Cause("spec.clusterIPs", "InternalError", why)]
        spec["clusterIP"], spec["clusterIPs"] = str(found), [str(found)]
        return []

    def _why_not(self, wanted: IPv4Address, taken: Taken) -> str:
        if wanted not in self._network or wanted in (self._network[0], self._network[-1]):
            return f"the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {self._network}"
        return "provided IP is already allocated" if wanted in taken else ""

    def _candidates(self) -> Iterator[IPv4Address]:
        last = self._network.num_addresses - 1
        numbers = range(1 + CHOSEN_PART, last)
        start = random.randrange(len(numbers))  # noqa: S311 - only spreads
        for step in range(len(numbers)):
            yield self._network[numbers[(start + step) % len(numbers)]]
        for number in range(1, 1 + CHOSEN_PART):
            yield self._network[number]

    def _ports(self, owner: Key, spec: Json) -> list[Cause]:
        if not service_rules.needs_node_ports(spec):
            return []
        taken = self._taken(owner)
        causes: list[Cause] = []
        ports = [{**port} for port in as_objects(spec.get("ports"))]
        for index, port in enumerate(ports):
            wanted = port.get("nodePort")
            if wanted:
                why = _why_not_port(wanted, (port["protocol"], wanted) in taken)
                if why:
                    causes.append(invalid_value(f"spec.ports[{index}].nodePort", wanted, why))
                taken.add((port["protocol"], wanted))
        for index, port in enumerate(ports):
            if not port.get("nodePort"):
                found = next((n for n in _port_candidates() if not _uses_port(taken, n)), None)
                if found is None:
                    why = "no node port is free; delete Services of type NodePort"
                    causes.append(Cause(f"spec.ports[{index}].nodePort", "InternalError", why))
                    break
                port["nodePort"] = found
                taken.add((port["protocol"], found))
        spec["ports"] = ports
        return causes

    def _taken(self, owner: Key) -> Taken:
        """What other Services have, on disk or on its way there."""
        services, now = self._state.collection(STORE), self._clock()
        for key, held in list(self._held.items()):
            if held.until < now or services.latest(key) is not held.before:
                del self._held[key]
        taken: Taken = {item for key, held in self._held.items() if key != owner for item in held.items}
        for key in {*services.entries, *services.pending} - {owner}:
            entry = services.latest(key)
            if entry is not None:
                taken.update(_items(entry.object().get("spec") or {}))
        return taken


def _items(spec: Json) -> Iterator[object]:
    """The addresses and node ports of a Service."""
    address = str(spec.get("clusterIP") or "")
    if address and address != service_rules.HEADLESS:
        yield IPv4Address(address)
    for port in as_objects(spec.get("ports")):
        if port.get("nodePort"):
            yield (port.get("protocol"), port["nodePort"])


def _why_not_port(number: int, taken: bool) -> str:
    if number not in NODE_PORTS:
        limits = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
        return f"provided port is not in the valid range. The range of valid ports is {limits}"
    return "provided port is already allocated" if taken else ""


def _port_candidates() -> Iterator[int]:
    free = NODE_PORTS[CHOSEN_PORTS:]
    start = random.randrange(len(free))  # noqa: S311 - only spreads
    for step in range(len(free)):
        yield free[(start + step) % len(free)]
    yield from NODE_PORTS[:CHOSEN_PORTS]


def _uses_port(taken: Taken, number: int) -> bool:
    """A port that nobody chose is free for every protocol, as Kubernetes gives them."""
    return any((protocol, number) in taken for protocol in service_rules.PROTOCOLS)

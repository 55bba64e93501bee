"""What this node can run: the status of its HypervisorNode and the Node's labels, from what the drivers say."""

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from typing import Final

from anyvisor.agent.driver import DriverSession
from anyvisor.agent.vmi_status import now
from anyvisor.api.meta import Json, labels, list_at, object_at, uid, with_condition
from anyvisor.api.wire import Time
from anyvisor.hri.v1 import types_pb2 as hri
from anyvisor.hri.v1.identity_pb2 import Condition
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.kube.client import Client
from anyvisor.kube.errors import AlreadyExists, ApiError, NotFound
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import HYPERVISOR_NODES, NODES
from anyvisor.planning.registry import registry

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = (0.1, 0.5, 1.0, 5.0)
_ACCELERATORS: Final[Mapping[int, str]] = {
    hri.ACCELERATOR_KVM: "kvm",
    hri.ACCELERATOR_MSHV: "mshv",
    hri.ACCELERATOR_EMULATION: "emulation",
    hri.ACCELERATOR_NONE: "none",
}

_MACHINE_TYPE_LABEL: Final = "machine-type.node.kubevirt.io"
_CPU_MODEL_LABEL: Final = "cpu-model.node.kubevirt.io"
"""Labels of the API itself, which launcher pods ask for whatever the driver is."""

_DRIVER_LABEL: Final = "/driver"
"""What follows a driver's name in the label that says that it works on the node."""

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

_LIMITS: Final = {"cpu.count": "cpu.count", "memory.bytes": "memory.size", "memory.size": "memory.size"}


def driver_status(session: DriverSession, old: Json, time: Time) -> Json:
    """One entry of `status.drivers`: pure. Facts only narrow what the manifest states."""
    facts = session.facts or NodeFacts()
    info = session.info
    result: Json = {
        "driver": session.address.name,
        "healthy": session.usable,
        "conditions": _conditions(session, facts, old, time),
        "capabilities": _capabilities(facts),
    }
    if session.facts is not None:
        result["accelerators"] = [
            _ACCELERATORS[fact.accelerator]
            for fact in facts.accelerators
            if fact.runs_guest and fact.accelerator in _ACCELERATORS
        ]
    if info is not None:
        result["version"] = info.version
        result["hriMinor"] = session.client.minor
        if _DIGEST.fullmatch(info.manifest_digest):
            result["manifestDigest"] = info.manifest_digest
    return result


def _conditions(session: DriverSession, facts: NodeFacts, old: Json, time: Time) -> list[Json]:
    ready = Condition(
        type="Ready",
        status=session.usable,
        reason="DriverReady" if session.usable else "DriverNotReady",
        message=session.problem,
    )
    result: list[Json] = list_at(old, "conditions")
    wanted = [ready, *facts.conditions, *_accelerator_conditions(facts)]
    for condition in wanted:
        entry: Json = {
            "type": condition.type,
            "status": "True" if condition.status else "False",
            "reason": condition.reason or "Stated",
            "message": condition.message,
        }
        result = with_condition(result, entry, time)
    known = {condition.type for condition in wanted}
    return [entry for entry in result if entry.get("type") in known]


def _accelerator_conditions(facts: NodeFacts) -> list[Condition]:
    """Why an accelerator that the driver knows runs no guest here."""
    return [
        Condition(
            type=f"Accelerator-{_ACCELERATORS[fact.accelerator]}",
            status=fact.runs_guest,
            reason="RunsGuests" if fact.runs_guest else "RunsNoGuest" if fact.opens else "NotUsable",
            message=fact.message,
        )
        for fact in facts.accelerators
        if fact.accelerator in _ACCELERATORS
    ]


def _capabilities(facts: NodeFacts) -> Json:
    """What this host takes away from the manifest, by capability id."""
    narrowed: Json = {
        capability: {
            "state": "no",
            "reason": facts.withdrawal_reasons.get(capability) or "this host does not have it",
        }
        for capability in sorted(facts.withdrawn_capabilities)
    }
    if facts.cpu_models:
        narrowed["cpu.model.named"] = {"values": list(facts.cpu_models)}
    if facts.machine_profiles:
        narrowed["machine.profile"] = {"values": list(facts.machine_profiles)}
    for limit, capability in _LIMITS.items():
        if limit in facts.limits:
            narrowed[capability] = {"max": facts.limits[limit]}
    return narrowed


def node_labels(session: DriverSession) -> dict[str, str | None]:
    """The labels that plans ask a node for: pure. None takes a label away.

    They follow the newest facts, not the connection: a driver that restarts must not drive machines away.
    """
    driver, facts = session.address.name, session.facts or NodeFacts()
    healthy = facts.health == NodeFacts.HEALTH_HEALTHY
    usable = {
        _ACCELERATORS[fact.accelerator]
        for fact in facts.accelerators
        if fact.runs_guest and fact.accelerator in _ACCELERATORS
    }
    withdrawn = set(facts.withdrawn_capabilities)
    found = {f"{driver}{_DRIVER_LABEL}": healthy}
    for accelerator in _ACCELERATORS.values():
        found[f"{driver}/accelerator.{accelerator}"] = healthy and accelerator in usable
    for capability in registry():
        if capability.node_varies and capability.id in session.address.capabilities:
            found[f"{driver}/capability.{capability.id}"] = healthy and capability.id not in withdrawn
    for profile in facts.machine_profiles:
        found[f"{_MACHINE_TYPE_LABEL}/{profile}"] = healthy
    for model in facts.cpu_models:
        found[f"{_CPU_MODEL_LABEL}/{model}"] = healthy
    return {label: "true" if holds else None for label, holds in found.items()}


class NodeReporter:
    """Keeps the HypervisorNode of this node current: written when something changed, and at no other time."""

    def __init__(
        self,
        client: Client,
        node: str,
        endpoint: str,
        sessions: Mapping[str, DriverSession],
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._client = client
        self._node = node
        self._endpoint = endpoint
        self._sessions = sessions
        self._own = dict(labels or {})
        self._changed = asyncio.Event()
        self._changed.set()
        self._labels: dict[str, str | None] = {}
        self._drivers: frozenset[str] = frozenset()

    def changed(self) -> None:
        """A driver said something new."""
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled; also when somebody took one of the objects away."""
        named = f"metadata.name={self._node}"
        async with (
            Informer(self._client, NODES, fields=named) as nodes,
            Informer(self._client, HYPERVISOR_NODES, fields=named) as own,
        ):
            nodes.on_change(self._seen)
            own.on_change(self._seen)
            await self._keep()

    def _seen(self, _old: CachedObject | None, new: CachedObject | None) -> None:
        if new is None:
            self._labels = {}
            self._changed.set()

    async def _keep(self) -> None:
        failures = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
                failures = 0
            except ApiError as error:
                log.warning("HypervisorNode %s: %s", self._node, error)
                self._changed.set()
                await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                failures += 1

    async def _write(self) -> None:
        present = await self._present()
        old = {entry.get("driver"): entry for entry in list_at(present, "status", "drivers")}
        current = {name: s for name, s in sorted(self._sessions.items()) if not s.address.version}
        status: Json = {
            "agent": {"endpoint": self._endpoint},
            "drivers": [driver_status(s, old.get(name) or {}, now()) for name, s in current.items()],
        }
        if status != object_at(present, "status"):
            await self._client.patch(HYPERVISOR_NODES, self._node, None, {"status": status}, subresource="status")
        wanted: dict[str, str | None] = {**self._own}
        for session in current.values():
            wanted |= node_labels(session)
        drivers = frozenset(current)
        # A driver may go that was silent at the last look, whose labels are of an earlier one.
        if wanted != self._labels or drivers != self._drivers:
            gone: dict[str, str | None] = {**dict.fromkeys(self._labels), **await self._left_behind(current)}
            node = await self._client.patch(NODES, self._node, None, {"metadata": {"labels": gone | wanted}})
            await self._belong_to(node, present)
            self._labels, self._drivers = wanted, drivers

    async def _belong_to(self, node: Json, own: Json) -> None:
        """Let what is told of the node go with it; garbage collection sees to that."""
        owner: Json = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": uid(node)}
        if list_at(own, "metadata", "ownerReferences") != [owner]:
            await self._client.patch(HYPERVISOR_NODES, self._node, None, {"metadata": {"ownerReferences": [owner]}})

    async def _left_behind(self, current: Collection[str]) -> dict[str, str | None]:
        """Labels of drivers that an agent before us knew, and that are not installed any more."""
        present = labels(await self._client.get(NODES, self._node))
        drivers = [label.removesuffix(_DRIVER_LABEL) for label in present if label.endswith(_DRIVER_LABEL)]
        gone = tuple(f"{driver}/" for driver in drivers if driver not in current)
        return {label: None for label in present if label.startswith(gone)}

    async def _present(self) -> Json:
        try:
            return await self._client.get(HYPERVISOR_NODES, self._node)
        except NotFound:
            pass
        try:
            return await self._client.create(HYPERVISOR_NODES, {"metadata": {"name": self._node}})
        except AlreadyExists:
            return await self._client.get(HYPERVISOR_NODES, self._node)

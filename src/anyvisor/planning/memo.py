"""Plans that were made before. The same inputs give the same plan, and a machine asks several times on its way."""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from anyvisor.planning.facts import NodeFacts
from anyvisor.planning.plan import Plan
from anyvisor.planning.planner import Driver, Policy, plan
from anyvisor.planning.values import is_map

SIZE: Final = 256
_FLEETS: Final = 8
_IDENTITY: Final = ("uuid", "serial")
"""Of `domain.firmware`: the planner asks whether the machine has them, and each machine has others."""


class Memo:
    """The plans that were asked for last, by the digest of what they were asked with; at most `size`."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()
        self._fleets: OrderedDict[int, tuple[Sequence[NodeFacts], bytes]] = OrderedDict()

    def plan(
        self,
        spec: Mapping[str, Any],
        hypervisor_class: Mapping[str, Any],
        driver: Driver,
        nodes: Sequence[NodeFacts] = (),
        policy: Policy | None = None,
        *,
        defaulted: Mapping[str, str] | None = None,
    ) -> Plan:
        """As `planner.plan`, whose arguments these are."""
        known = (driver.digest, driver.manifest.pod.image)
        key = digest((_anonymous(spec), hypervisor_class, known, self._fleet(nodes), policy, defaulted))
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = plan(spec, hypervisor_class, driver, nodes, policy, defaulted=defaulted)
            if len(self._plans) > self._size:
                self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return found

    def _fleet(self, nodes: Sequence[NodeFacts]) -> bytes:
        """The digest of all facts. A tuple of them never changes, so that it is read once, however long it is."""
        if not isinstance(nodes, tuple):
            return digest(nodes)
        known = self._fleets.get(id(nodes))
        if known is None:
            known = self._fleets[id(nodes)] = nodes, digest(nodes)
            if len(self._fleets) > _FLEETS:
                self._fleets.popitem(last=False)
        return known[1]


def digest(value: Any) -> bytes:
    """A short name of a question, or of a part of one, by what it says."""
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=16).digest()


def _anonymous(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec without what tells one machine from another of the same kind."""
    domain = spec.get("domain")
    firmware = domain.get("firmware") if is_map(domain) else None
    if not is_map(domain) or not is_map(firmware):
        return spec
    kept = {name: bool(value) if name in _IDENTITY else value for name, value in firmware.items()}
    return {**spec, "domain": {**domain, "firmware": kept}}

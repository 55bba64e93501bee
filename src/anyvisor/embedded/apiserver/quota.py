"""ResourceQuota and LimitRange: what a namespace may hold, and what a container gets that states nothing."""

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from anyvisor.api.meta import object_at
from anyvisor.api.quantity import Quantity, QuantityError, parse_quantity
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.values import as_object, lookup, objects_at

Json = dict[str, Any]
Usage = dict[str, Quantity]

QUOTAS = "resourcequotas"
LIMITS = "limitranges"
ZERO = Quantity.of(0)
_PLAIN_COUNTS = frozenset(
    {"pods", "services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas", "replicationcontrollers"}
)
_FINISHED = ("Succeeded", "Failed")


def quantity(value: Any) -> Quantity:
    """Read a quantity; what is none counts as nothing, since validation refuses it elsewhere."""
    try:
        return parse_quantity(value) if isinstance(value, str | int) else ZERO
    except QuantityError:
        return ZERO


def usage_of(resource: Resource, obj: Json) -> Usage:
    """Return what one object takes of a quota."""
    one = Quantity.of(1)
    used: Usage = {f"count/{resource.plural}.{resource.group}" if resource.group else f"count/{resource.plural}": one}
    if not resource.group and resource.plural in _PLAIN_COUNTS:
        used[resource.plural] = one
    if not resource.group and resource.plural == "pods":
        if lookup(obj, ("status", "phase")) in _FINISHED:
            used.pop("pods")
        else:
            used.update(_pod_usage(obj))
    if not resource.group and resource.plural == "persistentvolumeclaims":
        size = quantity(lookup(obj, ("spec", "resources", "requests", "storage")))
        name = lookup(obj, ("spec", "storageClassName"))
        used["requests.storage"] = size
        if name:
            used[f"{name}.storageclass.storage.k8s.io/requests.storage"] = size
            used[f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims"] = one
    return used


def _pod_usage(pod: Json) -> Usage:
    used: Usage = {}
    for part in ("requests", "limits"):
        total = _sum(object_at(item, "resources", part) for item in objects_at(pod, "spec", "containers"))
        for item in objects_at(pod, "spec", "initContainers"):
            for name, value in object_at(item, "resources", part).items():
                total[name] = max(total.get(name, ZERO), quantity(value), key=lambda amount: amount.exact)
        for name, value in object_at(pod, "spec", "overhead").items():
            if name in total:
                total[name] += quantity(value)
        for name, amount in total.items():
            used[f"{part}.{name}"] = amount
            if part == "requests" and name in ("cpu", "memory", "ephemeral-storage"):
                used[name] = amount
    return used


def _sum(amounts: Iterable[Json]) -> Usage:
    total: Usage = {}
    for item in amounts:
        for name, value in item.items():
            total[name] = total.get(name, ZERO) + quantity(value)
    return total


def used_in(state: State, resources: Iterable[Resource], namespace: str, names: Iterable[str]) -> Usage:
    """Return what the objects of a namespace take, for the names that a quota limits."""
    wanted = set(names)
    total: Usage = dict.fromkeys(wanted, ZERO)
    for resource in resources:
        if not resource.namespaced or not wanted & _names(resource, wanted):
            continue
        collection = state.collection(resource.store)
        keys = {entry.key for entry in collection.range(namespace)}
        keys |= {key for key in collection.pending if key[0] == namespace}
        for key in keys:
            entry = collection.latest(key)
            if entry is None:
                continue
            for name, amount in usage_of(resource, entry.object()).items():
                if name in wanted:
                    total[name] += amount
    return total


def _names(resource: Resource, wanted: set[str]) -> set[str]:
    """Return the limited names that objects of a resource can count for."""
    count = f"count/{resource.plural}.{resource.group}" if resource.group else f"count/{resource.plural}"
    found = {count, resource.plural} if not resource.group else {count}
    if resource.plural == "pods" and not resource.group:
        found |= {name for name in wanted if name.startswith(("requests.", "limits.")) or name in ("cpu", "memory")}
    if resource.plural == "persistentvolumeclaims" and not resource.group:
        found |= {name for name in wanted if "storage" in name}
    return found


class QuotaCheck:
    """Refuses what would exceed a quota of its namespace."""

    phase: Literal["mutating", "validating"] = "validating"

    def __init__(self, state: State, resources: Callable[[], Iterable[Resource]]) -> None:
        self._state = state
        self._resources = resources

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Answer a creation, or a change of a claim's size."""
        quotas = self._state.collection(QUOTAS)
        if not quotas.entries or request.object is None or request.subresource or not request.namespace:
            return ALLOWED
        if request.operation not in ("CREATE", "UPDATE"):
            return ALLOWED
        wants = usage_of(request.resource, request.object)
        if request.old_object is not None:
            before = usage_of(request.resource, request.old_object)
            wants = {name: amount - before.get(name, ZERO) for name, amount in wants.items()}
        for entry in quotas.range(request.namespace):
            hard = object_at(entry.object(), "spec", "hard")
            refused = self._exceeded(entry.key[1], request.namespace, hard, wants)
            if refused:
                return AdmissionResult(denied=refused)
        return ALLOWED

    def _exceeded(self, name: str, namespace: str, hard: Json, wants: Usage) -> str:
        limited = {item: amount for item, amount in wants.items() if item in hard and amount.exact > 0}
        if not limited:
            return ""
        used = used_in(self._state, self._resources(), namespace, limited)
        over = [item for item in sorted(limited) if (used[item] + limited[item]).exact > quantity(hard[item]).exact]
        if not over:
            return ""

        def shown(amounts: Mapping[str, Any]) -> str:
            return ",".join(f"{item}={amounts[item]}" for item in over)

        return f"exceeded quota: {name}, requested: {shown(limited)}, used: {shown(used)}, limited: {shown(hard)}"


class LimitRanger:
    """Gives containers the defaults of the namespace's LimitRanges and refuses what is outside their bounds."""

    phase: Literal["mutating", "validating"] = "mutating"

    def __init__(self, state: State) -> None:
        self._state = state

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Answer the creation of a pod or claim."""
        ranges = self._state.collection(LIMITS)
        if not ranges.entries or request.operation != "CREATE" or request.resource.group or request.object is None:
            return ALLOWED
        limits = [
            limit for entry in ranges.range(request.namespace) for limit in objects_at(entry.object(), "spec", "limits")
        ]
        if request.resource.plural == "pods":
            return _limit_pod(request.object, [limit for limit in limits if limit.get("type") == "Container"])
        if request.resource.plural == "persistentvolumeclaims":
            size = {"storage": lookup(request.object, ("spec", "resources", "requests", "storage"))}
            claims = [limit for limit in limits if limit.get("type") == "PersistentVolumeClaim"]
            why = next(filter(None, (_outside(limit, size, size, "PersistentVolumeClaim") for limit in claims)), "")
            return AdmissionResult(denied=why) if why else ALLOWED
        return ALLOWED


def _limit_pod(pod: Json, limits: list[Json]) -> AdmissionResult:
    if not limits:
        return ALLOWED
    changed = copy.deepcopy(pod)
    for container in [*objects_at(changed, "spec", "containers"), *objects_at(changed, "spec", "initContainers")]:
        resources = container.setdefault("resources", {})
        for limit in limits:
            caps: Json = {**object_at(limit, "default"), **as_object(resources.get("limits"))}
            wants: Json = {**object_at(limit, "defaultRequest"), **as_object(resources.get("requests"))}
            for name, value in caps.items():
                wants.setdefault(name, value)
            resources.update({key: value for key, value in (("limits", caps), ("requests", wants)) if value})
            why = _outside(limit, wants, caps, "Container")
            if why:
                return AdmissionResult(denied=why)
    return AdmissionResult(object=changed)


def _outside(limit: Json, wants: Json, caps: Json, kind: str) -> str:
    for name, low in object_at(limit, "min").items():
        if quantity(wants.get(name)).exact < quantity(low).exact:
            return f"minimum {name} usage per {kind} is {low}, but request is {wants.get(name, 0)}"
    for name, high in object_at(limit, "max").items():
        if name not in caps:
            return f"maximum {name} usage per {kind} is {high}.  No limit is specified"
        if quantity(caps[name]).exact > quantity(high).exact:
            return f"maximum {name} usage per {kind} is {high}, but limit is {caps[name]}"
    return ""

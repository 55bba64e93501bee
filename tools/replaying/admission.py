"""Replays recorded admission decisions."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.offline import Offline
from anyvisor.admission.result import CREATE, AdmissionRequest, AdmissionResult, User
from anyvisor.admission.schema import Schemas
from anyvisor.api.crd import crds
from anyvisor.api.meta import Json, name, namespace
from anyvisor.api.quantity import QuantityError, parse_quantity

MASKS = ("<random>", "<now>", "<time>")
"""What stands in a recorded object for a value that no two runs share."""
CUT = 10
"""The number of causes after which the recorded implementation stops."""
_UUID = "6a1c9f4e-8f2b-4c39-9a44-2f0b6c1d7e55"
_NOW = "2026-06-01T00:00:00Z"


class World:
    """The recorded objects around a case."""

    def __init__(self, objects: Sequence[Json]) -> None:
        self._objects = objects

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """One object by its name."""
        return next((one for one in self.list(kind, namespace) if one["metadata"]["name"] == name), None)

    def list(self, kind: str, namespace: str = "") -> Sequence[Json]:
        """All objects of a kind in a namespace."""
        return [
            one
            for one in self._objects
            if one["kind"] == kind and (not namespace or one["metadata"].get("namespace") == namespace)
        ]


@cache
def _schemas() -> Schemas:
    return Schemas(crds())


def decide(case: Json) -> AdmissionResult:
    """Our decision on a recorded case."""
    context, request, obj = case["context"], case.get("request") or {}, case["object"]
    config = ClusterConfig.of(
        context.get("configuration"), context.get("architecture") or "amd64", request.get("kvAnnotations")
    )
    question = AdmissionRequest(
        operation=request.get("operation", CREATE),
        kind=case["kind"],
        object=obj,
        new_uuid=lambda: _UUID,
        now=_NOW,
        namespace=request.get("namespace") or namespace(obj),
        name=request.get("name") or name(obj),
        old_object=request.get("old"),
        user=User(request.get("user", ""), (), request.get("extra") or {}),
        dry_run=bool(request.get("dryRun")),
        subresource=request.get("subresource", ""),
        related=World(request.get("world") or ()),
    )
    return Offline(_schemas(), config, lambda: _UUID, _NOW).decide(question)


def replay(case: Json) -> list[str]:
    """The differences between the recorded decision and ours; empty when they are equal."""
    return list(compare(case, decide(case)))


def compare(case: Json, got: AdmissionResult) -> Iterator[str]:
    """The verdict, the set of causes and what was filled in; order and repetition of causes do not count."""
    if case.get("crash") or case.get("crd"):
        if got.allowed:
            yield "allowed, but the schema or a crash refuses it"
        return
    if got.allowed != case["allowed"]:
        yield f"allowed={got.allowed} instead of {case['allowed']} ({got.message or 'no causes'})"
        return
    want = {(cause["field"], cause["type"]) for cause in case["causes"]}
    have = {(cause.field, cause.type) for cause in got.causes}
    cut = len(case["causes"]) == CUT
    if want and not (want <= have if cut else want == have):
        yield f"causes missing {sorted(want - have)}, too many {[] if cut else sorted(have - want)}"
    yield from _effects(case, got)
    if case.get("stage") != "mutate" and "defaulted" in case:
        for part in ("spec", "status", "metadata"):
            yield from _object_differences((case["defaulted"] or {}).get(part), got.object.get(part), part)


def _effects(case: Json, got: AdmissionResult) -> Iterator[str]:
    """The patches of other objects that the decision brings with it."""
    want = [(call["path"].partition("?"), call["body"]) for call in case.get("apiCalls") or ()]
    for (path, _, query), body in want:
        effect = got.effects[0] if got.effects else None
        if effect is None or not path.endswith(f"/namespaces/{effect.namespace}/virtualmachineinstances/{effect.name}"):
            yield f"no patch of {path}"
        elif effect.dry_run != (query == "dryRun=All"):
            yield f"dry run {effect.dry_run} of the patch of {path}"
        elif _unescaped(effect.patch) != _unescaped(body):
            yield f"the patch {effect.patch} instead of {body}"
    if not want and got.effects:
        yield f"a patch of {got.effects[0].name} that nobody recorded"


def _unescaped(patch: Any) -> str:
    # The recorded implementation escapes a key as if it stood in a path.
    return repr(patch).replace("~1", "/")


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_empty(member) for member in value.values())
    if isinstance(value, list):
        return all(_is_empty(member) for member in value)
    return value is None or value == "" or value == 0


def _value(written: Any) -> Any:
    try:
        return parse_quantity(written).nanos if isinstance(written, str) else written
    except QuantityError:
        return written


def _object_differences(want: Any, have: Any, path: str) -> Iterator[str]:
    if want in MASKS:
        if not have:
            yield f"{path}: missing"
    elif _is_empty(want) and _is_empty(have):
        return
    elif isinstance(want, dict) and isinstance(have, dict):
        for key in sorted(want.keys() | have.keys()):
            yield from _object_differences(want.get(key), have.get(key), f"{path}.{key}")
    elif isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        for index, (one, other) in enumerate(zip(want, have, strict=True)):
            yield from _object_differences(one, other, f"{path}[{index}]")
    elif _value(want) != _value(have):
        yield f"{path}: {str(have)[:60]!r} instead of {str(want)[:60]!r}"

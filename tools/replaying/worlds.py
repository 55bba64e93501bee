"""What the replays of recorded reconcile passes share: reading worlds, applying outcomes, comparing."""

import copy
import json
import re
from datetime import UTC, datetime
from typing import Any

from anyvisor.api.meta import Json, name, namespace
from anyvisor.api.quantity import QuantityError, parse_quantity
from anyvisor.controller.outcome import Change, Create, Delete, Outcome

NOW = datetime(2026, 6, 1, tzinfo=UTC)
"""The moment at which the worlds are looked at: after their past and before their far future."""
MASKED = {"<time>", "<random>", "<number>", "<now>", "<jittered>"}
_AMOUNT = re.compile(r"^[+-]?[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$")


def of_kind(case: Json, kind: str) -> list[Json]:
    """The objects of one kind in a case's world."""
    return [copy.deepcopy(found) for found in case["in"].get("world", []) if found["kind"] == kind]


def quotas(case: Json) -> list[Json]:
    """The resource quotas of the case's namespace."""
    return [one for one in of_kind(case, "ResourceQuota") if namespace(one) == case["in"]["namespace"]]


def by_name(objects: list[Json]) -> dict[str, Json]:
    """Objects by their name."""
    return {name(found): found for found in objects}


def subject(case: Json, kind: str) -> Json | None:
    """The object that the case reconciles."""
    wanted = (case["in"]["namespace"], case["in"]["name"])
    return next((one for one in of_kind(case, kind) if (namespace(one), name(one)) == wanted), None)


def events(outcome: Outcome) -> list[str]:
    """All events of an outcome that goes well, as `Type Reason`."""
    found = [event for write in outcome.writes if not isinstance(write, Change) for event in [write.done]]
    return sorted(f"{event.type} {event.reason}" for event in [*found, *outcome.events] if event is not None)


def conditions(status: Json) -> list[list[str]]:
    """Conditions as sorted [type, status, reason]."""
    found = status.get("conditions") or []
    return sorted([one["type"], one["status"], one.get("reason") or ""] for one in found)


def creates(outcome: Outcome) -> list[Create]:
    """The creations of an outcome."""
    return [write for write in outcome.writes if isinstance(write, Create)]


def deletes(outcome: Outcome) -> list[str]:
    """What an outcome deletes, as `plural/name`."""
    found = [write for write in outcome.writes if isinstance(write, Delete)]
    return sorted(f"{write.resource.plural}/{name(write.object)}" for write in found)


def empty(value: Any) -> bool:
    """Whether a JSON value equals absence."""
    if isinstance(value, dict):
        return all(empty(inner) for inner in value.values())
    if isinstance(value, list):
        return all(empty(inner) for inner in value)
    return value is None or value == "" or value is False or value == 0


def differences(want: Any, have: Any, path: str = "") -> list[str]:
    """Where two JSON values differ; order in lists of objects does not count, masked values match."""
    if isinstance(want, str) and want in MASKED:
        return [] if have is not None else [f"{path}: missing"]
    if empty(want) and empty(have):
        return []
    if isinstance(want, dict) and isinstance(have, dict):
        keys = sorted({*want, *have})
        return [one for key in keys for one in differences(want.get(key), have.get(key), f"{path}.{key}")]
    if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        pairs = zip(_ordered(want), _ordered(have), strict=True)
        return [one for i, (a, b) in enumerate(pairs) for one in differences(a, b, f"{path}[{i}]")]
    return [] if _same(want, have) else [f"{path}: {str(have)[:300]!r} instead of {str(want)[:300]!r}"]


def _ordered(values: list[Any]) -> list[Any]:
    return sorted(values, key=_place)


def _place(value: Any) -> str:
    """What a value is sorted by: its name, else all that it says."""
    if isinstance(value, dict) and "name" in value:
        return str(value["name"])
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else str(value)


def _same(want: Any, have: Any) -> bool:
    if want == have:
        return True
    texts = isinstance(want, str) and isinstance(have, str)
    if not texts or not _AMOUNT.match(want) or not _AMOUNT.match(have):
        return False
    try:
        return parse_quantity(want) == parse_quantity(have)
    except QuantityError:
        return False

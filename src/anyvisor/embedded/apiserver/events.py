"""Events of `events.k8s.io/v1` and of `v1` are one stored object, kept in the core form."""

from typing import Any

Json = dict[str, Any]

_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_FROM_CORE = {core: new for new, core in _TO_CORE.items()}


def to_core(event: Json) -> Json:
    """Return the core/v1 form of an events.k8s.io/v1 event."""
    result = {_TO_CORE.get(name, name): value for name, value in event.items()}
    result["apiVersion"] = "v1"
    series = result.get("series")
    if series:
        result["series"] = dict(series)
    return result


def from_core(event: Json) -> Json:
    """Return the events.k8s.io/v1 form of a core/v1 event."""
    result = {_FROM_CORE.get(name, name): value for name, value in event.items()}
    result["apiVersion"] = "events.k8s.io/v1"
    return result

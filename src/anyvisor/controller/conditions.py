"""Condition lists as KubeVirt keeps them: one entry per type, replaced when status or reason changes.

A changed message alone does not replace an entry, so that a moving detail (a count, a time) causes no writes.
"""

from datetime import UTC, datetime

from anyvisor.api.meta import Json


def timestamp(moment: datetime) -> str:
    """The moment in the form of Kubernetes' `metav1.Time`: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: object) -> datetime | None:
    """The moment that a JSON value names, or None when it names none."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def find(conditions: list[Json], type_: str) -> Json | None:
    """The condition of a type, if it is there."""
    return next((entry for entry in conditions if entry.get("type") == type_), None)


def has(conditions: list[Json], type_: str, status: str, reason: str | None = None) -> bool:
    """Whether the condition of a type is there with a status, and a reason if one is given."""
    entry = find(conditions, type_)
    if entry is None or entry.get("status") != status:
        return False
    return reason is None or entry.get("reason", "") == reason


def update(conditions: list[Json], new: Json) -> None:
    """Set a condition in place; an entry of the same status and reason stays as it is."""
    for index, entry in enumerate(conditions):
        if entry.get("type") != new["type"]:
            continue
        if (entry.get("status"), entry.get("reason") or "") != (new.get("status"), new.get("reason") or ""):
            conditions[index] = new
        return
    conditions.append(new)


def remove(conditions: list[Json], type_: str) -> None:
    """Take the condition of a type out in place."""
    conditions[:] = [entry for entry in conditions if entry.get("type") != type_]


def make(type_: str, status: str, reason: str, message: str, now: datetime) -> Json:
    """A condition that begins now; empty texts are left out."""
    condition: Json = {"type": type_, "status": status, "lastTransitionTime": timestamp(now)}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def copied(entry: Json, type_: str | None = None) -> Json:
    """A condition taken over from another object, with its own times."""
    keys = ("status", "reason", "message", "lastProbeTime", "lastTransitionTime")
    return {"type": type_ or entry["type"], **{key: entry[key] for key in keys if entry.get(key)}}

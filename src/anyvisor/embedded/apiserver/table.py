"""Tables and bare metadata: the two other forms in which objects are answered (`meta.k8s.io`)."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from anyvisor.embedded.apiserver.resource import Column

Json = dict[str, Any]


def partial_metadata(obj: Json, version: str = "v1") -> Json:
    """Return the object's identity alone."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj.get("metadata", {}),
    }


def table(
    columns: Sequence[Column],
    objects: Iterable[Json],
    metadata: Json,
    now: datetime,
    *,
    include: str = "Metadata",
    version: str = "v1",
    definitions: bool = True,
) -> Json:
    """Return the objects as rows; `include` says how much of each object a row carries."""
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns] if definitions else None,
        "rows": [row(columns, obj, now, include, version) for obj in objects],
    }


def row(columns: Sequence[Column], obj: Json, now: datetime, include: str, version: str) -> Json:
    """Return one row of a table."""
    made: Json = {"cells": [cell(column, obj, now) for column in columns]}
    if include == "Object":
        made["object"] = obj
    elif include != "None":
        made["object"] = partial_metadata(obj, version)
    return made


def cell(column: Column, obj: Json, now: datetime) -> Any:
    """Return one cell; dates become ages."""
    value = column.value(obj)
    if column.type == "date":
        return age(value, now)
    return value


def age(stamp: Any, now: datetime) -> str:
    """Return how long ago a time stamp was, as kubectl writes it."""
    if not stamp:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(str(stamp))
    except ValueError:
        return "<invalid>"
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return human_duration(int((now - then).total_seconds()))


def human_duration(seconds: int) -> str:
    """Return a duration with at most two units, coarser as it grows."""
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes = seconds // 60
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"

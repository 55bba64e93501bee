"""The table of the API's fields, and objects with every field filled."""

import json
from pathlib import Path
from typing import Any

TABLE: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data/kubevirt_schema.json").read_text())
Row = dict[str, Any]

_SCALARS: dict[str, Any] = {"string": "text", "integer": 7, "boolean": False, "number": 1.5, "Quantity": "1536Mi"}


def _scalar(row: Row) -> Any:
    kind = row["type"]
    if row.get("k8s") == "Quantity":
        return "1536Mi"
    if row.get("k8s") == "IntOrString" or kind == ["string", "number"]:
        return 8080
    return "2026-01-31T10:00:00Z" if kind == ["string", "null"] else _SCALARS[kind]


def filled(rows: list[Row]) -> dict[str, Any]:
    """An object in which every field of the rows has a value; `false`, for booleans, as absent is not false."""
    root: dict[str, Any] = {}
    places: dict[str, dict[str, Any]] = {"": root}
    for row in rows:
        path: str = row["path"]
        parent, _, name = path.rpartition(".")
        holder = places.get(parent)
        if holder is None:
            continue
        inner: dict[str, Any] = {}
        if row.get("array"):
            scalar = _SCALARS.get(row["items"])
            holder[name] = [inner] if scalar is None else [scalar, scalar]
            places[path + "[]"] = inner
        elif row.get("map"):
            scalar = _SCALARS.get(row["values"])
            holder[name] = {"key": inner if scalar is None else scalar}
            places[path + "{}"] = inner
        elif row["type"] == "object":
            holder[name] = inner
            places[path] = inner
            if name == "metadata" and row.get("ref", "ObjectMeta").endswith("ObjectMeta"):
                inner.update(filled(TABLE["shapes"]["ObjectMeta"]))
        else:
            holder[name] = _scalar(row)
    return root


def required(rows: list[Row]) -> list[Row]:
    """The rows that an object must have, and those of its parents that are there."""
    kept: set[str] = {""}
    result: list[Row] = []
    for row in rows:
        parent = row["path"].rpartition(".")[0]
        if row.get("required") and parent in kept:
            result.append(row)
            kept |= {row["path"], row["path"] + "[]", row["path"] + "{}"}
    return result

"""JSON patch operations (RFC 6902); each change is guarded by a test of what it was decided on."""

from typing import Any

from anyvisor.api.meta import Json


def test(path: str, value: Any) -> Json:
    return {"op": "test", "path": path, "value": value}


def add(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Any) -> Json:
    return {"op": "replace", "path": path, "value": value}


def remove(path: str) -> Json:
    return {"op": "remove", "path": path}


def change(path: str, old: Any, new: Any) -> list[Json]:
    """Set `path` to `new` provided it is still `old`; None means absent."""
    return [test(path, old), add(path, new) if old is None else replace(path, new)]

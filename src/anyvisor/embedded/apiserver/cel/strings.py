"""Functions on strings; those that search work on lists too.

Regular expressions are tested by an engine of linear time, and searched by Python's.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jsonschema_rs

from anyvisor.embedded.apiserver.cel.errors import CelError
from anyvisor.embedded.apiserver.cel.values import MAX_SIZE, Optional, as_items, as_text, equal


def char_at(value: Any, at: int) -> str:
    text = as_text(value)
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return text[at : at + 1]


def substring(value: Any, start: int, end: int | None = None) -> str:
    text = as_text(value)
    last = len(text) if end is None else end
    if not 0 <= start <= last <= len(text):
        raise CelError(f"index out of range: {start}, {last}")
    return text[start:last]


def index_of(value: Any, part: Any, start: int = 0) -> int:
    if isinstance(value, str):
        return value.find(as_text(part), start)
    for at, item in enumerate(as_items(value)):
        if equal(item, part):
            return at
    return -1


def last_index_of(value: Any, part: Any) -> int:
    if isinstance(value, str):
        return value.rfind(as_text(part))
    items = as_items(value)
    for at in range(len(items) - 1, -1, -1):
        if equal(items[at], part):
            return at
    return -1


def split(value: Any, separator: Any, limit: int = -1) -> list[Any]:
    text = as_text(value)
    if limit == 0:
        return []
    if not separator:
        return list(text)
    return list(text.split(as_text(separator), limit - 1 if limit > 0 else -1))


def replace(value: Any, old: Any, new: Any, limit: int = -1) -> str:
    text = as_text(value).replace(as_text(old), as_text(new), limit)
    if len(text) > MAX_SIZE:
        raise CelError("the result is too long")
    return text


def join(value: Any, separator: str = "") -> str:
    return separator.join(as_text(item) for item in as_items(value))


def string_contains(value: Any, part: Any) -> bool:
    if isinstance(value, Optional):
        raise CelError("no such overload: optional.contains")
    return as_text(part) in as_text(value)


def change_ascii(value: Any, change: Callable[[str], str]) -> str:
    return "".join(change(char) if char.isascii() else char for char in as_text(value))


@lru_cache(maxsize=512)
def _pattern(pattern: str) -> Callable[[Any], bool]:
    try:
        return jsonschema_rs.validator_for({"pattern": pattern}).is_valid
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise CelError(f"the regular expression {pattern!r} cannot be compiled") from error


def matches(value: Any, pattern: Any) -> bool:
    return _pattern(as_text(pattern))(as_text(value))


def _compiled(pattern: Any) -> re.Pattern[str]:
    try:
        return re.compile(as_text(pattern))
    except re.error as error:
        raise CelError(f"the regular expression {pattern!r} cannot be compiled: {error}") from error


def find(value: Any, pattern: Any) -> str:
    match = _compiled(pattern).search(as_text(value))
    return match[0] if match else ""


def find_all(value: Any, pattern: Any, limit: int = -1) -> list[Any]:
    found = [match[0] for match in _compiled(pattern).finditer(as_text(value))]
    return found if limit < 0 else found[:limit]

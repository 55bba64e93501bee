"""Functions on strings; those that search work on lists too.

Regular expressions are tested by an engine of linear time. They are searched by Python's, which can take for ever
on some: those are refused.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from re._parser import parse  # pyright: ignore[reportMissingImports, reportUnknownVariableType] -- has no stub
from typing import Any

import jsonschema_rs

from anyvisor.embedded.apiserver.cel.errors import CelError
from anyvisor.embedded.apiserver.cel.values import MAX_SIZE, Optional, as_items, as_text, equal

MAX_SEARCHED = 4096


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
        linear = jsonschema_rs.RegexOptions()
        return jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=linear).is_valid
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise CelError(f"the regular expression {pattern!r} cannot be compiled") from error


def matches(value: Any, pattern: Any) -> bool:
    return _pattern(as_text(pattern))(as_text(value))


@lru_cache(maxsize=512)
def _searcher(pattern: str) -> re.Pattern[str]:
    try:
        if _may_explode(parse(pattern)):
            raise CelError(f"the regular expression {pattern!r} repeats what itself repeats or has alternatives")
        return re.compile(pattern)
    except re.error as error:
        raise CelError(f"the regular expression {pattern!r} cannot be compiled: {error}") from error


def _may_explode(parsed: Any, *, repeated: bool = False) -> bool:
    """Whether a search may take exponential time: choices within what may be repeated without limit."""
    for operation, content in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            most, inner = content[1], content[2]
            if repeated or _may_explode(inner, repeated=most > 1):
                return True
        elif name == "BRANCH":
            if repeated or any(_may_explode(branch) for branch in content[1]):
                return True
        elif name == "SUBPATTERN" and _may_explode(content[-1], repeated=repeated):
            return True
    return False


def _compiled(pattern: Any, text: str) -> re.Pattern[str]:
    if len(text) > MAX_SEARCHED:
        raise CelError(f"a text of more than {MAX_SEARCHED} characters cannot be searched")
    return _searcher(as_text(pattern))


def find(value: Any, pattern: Any) -> str:
    text = as_text(value)
    match = _compiled(pattern, text).search(text)
    return match[0] if match else ""


def find_all(value: Any, pattern: Any, limit: int = -1) -> list[Any]:
    text = as_text(value)
    found = [match[0] for match in _compiled(pattern, text).finditer(text)]
    return found if limit < 0 else found[:limit]

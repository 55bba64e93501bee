"""The part of JSONPath that printer columns and CRD paths use: fields, indexes, slices of all, equality filters."""

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from anyvisor.embedded.apiserver.values import as_list, as_object

Json = dict[str, Any]
Step = Callable[[list[Any]], list[Any]]

_STEP = re.compile(
    r"\.?(?:"
    r"\[(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)\]"
    r"|\[\?\(\s*@\.(?P<path>[^=!<>\s]+)\s*(?P<op>==|!=)\s*(?P<literal>'[^']*'|\"[^\"]*\"|[^)\s]+)\s*\)\]"
    r"|\[(?P<index>-?\d+)\]"
    r"|\[(?P<all>\*|:)\]"
    r"|(?P<star>\*)"
    r"|(?P<name>(?:\\.|[^.\[\\])+)"
    r")"
)


class JsonPathError(ValueError):
    """The path uses what is not supported or is malformed."""


def compile_path(path: str) -> Callable[[Any], list[Any]]:
    """Compile a path such as `.status.conditions[?(@.type=="Ready")].status`.

    The result returns every value that the path finds. Raises JsonPathError.
    """
    steps: list[Step] = []
    at = 0
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    text = text.removeprefix("$")
    if text in ("", "."):
        return lambda value: [value]
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or match.end() == at:
            raise JsonPathError(f"cannot read the JSONPath {path!r} at {text[at:]!r}")
        steps.append(_step(match))
        at = match.end()

    def run(value: Any) -> list[Any]:
        values = [value]
        for step in steps:
            values = step(values)
        return values

    return run


def _step(match: re.Match[str]) -> Step:
    if match["op"]:
        return _filter(match["path"], match["op"] == "==", match["literal"])
    if match["index"]:
        at = int(match["index"])
        return lambda values: [items[at] for items in map(as_list, values) if -len(items) <= at < len(items)]
    if match["all"] or match["star"]:
        return _children
    name = match["quoted"] if match["quoted"] is not None else re.sub(r"\\(.)", r"\1", match["name"])
    return lambda values: [item[name] for item in map(as_object, values) if name in item]


def _children(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in values:
        if isinstance(item, dict):
            found.extend(cast("Json", item).values())
        elif isinstance(item, list):
            found.extend(cast("list[Any]", item))
    return found


def _filter(path: str, equal: bool, literal: str) -> Step:
    inner = compile_path("." + path)
    try:
        wanted: Any = literal[1:-1] if literal[0] in "'\"" else msgspec.json.decode(literal)
    except msgspec.DecodeError as error:
        raise JsonPathError(f"cannot read {literal!r} in a JSONPath filter") from error

    def run(values: list[Any]) -> list[Any]:
        found: list[Any] = []
        for items in values:
            for item in cast("list[Any]", items) if isinstance(items, list) else ():
                got = inner(item)
                if got and (got[0] == wanted) == equal:
                    found.append(item)
        return found

    return run

"""Reading manifests from YAML or JSON lines, with the line on which each field stands.

Files come from anywhere: size, nesting and the expansion of aliases are bounded before anything is built.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

MAX_BYTES = 64 << 20
_MAX_DEPTH = 128
_MAX_NODES = 500_000

_INTEGER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|0o?[0-7]+|0|[1-9][0-9]*)\Z", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?\Z", re.ASCII)
_TRUE, _FALSE, _NULL = ("true", "True", "TRUE"), ("false", "False", "FALSE"), ("null", "Null", "NULL", "~", "")
_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
_LONGEST_NUMBER = 64
_TEXT = "tag:yaml.org,2002:str"


class ManifestError(ValueError):
    """The text cannot be read; the message says where and why."""


@dataclass(slots=True)
class Document:
    """One object of a file: its value and where its parts stand; or why it could not be read."""

    value: Any
    line: int
    problem: str = ""
    lines: dict[str, int] = field(default_factory=dict[str, int])

    def line_of(self, path: str) -> int:
        """The line of a field, or of the nearest part of the path that was written."""
        found, at = self.line, ""
        for step in _STEP.findall(path):
            at = f"{at}{step}" if step.startswith("[") or not at else f"{at}.{step}"
            if at not in self.lines:
                break
            found = self.lines[at]
        return found


def read(text: str) -> list[Document]:
    """The objects in a text: YAML documents, or one JSON object a line; the members of a List stand for themselves."""
    documents = _json_lines(text)
    if documents is None:
        documents = list(_yaml_documents(text))
    return [member for document in documents for member in _members(document)]


def _json_lines(text: str) -> list[Document] | None:
    """The lines as objects, or None when the first is none; a later one that is none is told as such."""
    if not text.lstrip().startswith("{"):
        return None
    found: list[Document] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(Document(json.loads(line), number))
        except RecursionError:
            found.append(Document(None, number, problem="it is nested too deeply; flatten it"))
        except ValueError as error:
            if not found:
                return None
            found.append(Document(None, number, problem=f"it is no JSON: {error}"))
    return found


def _yaml_documents(text: str) -> Iterator[Document]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(text, loader)
        budget = _Budget()
        for node in yaml.compose_all(text, Loader=loader):
            if isinstance(node, yaml.ScalarNode) and node.value in _NULL and not node.style:
                continue
            document = Document(None, node.start_mark.line + 1)
            document.value = _build(node, "", document.lines, budget)
            yield document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ManifestError(f"{where}{error.problem or error.context or 'no YAML'}") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"it is no YAML: {str(error).splitlines()[0]}") from error


def _check_depth(text: str, loader: Any) -> None:
    """Refuse deep nesting while it is still a flat stream of events."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                where = f"line {event.start_mark.line + 1}" if event.start_mark else "it"
                raise ManifestError(f"{where}: nested deeper than {_MAX_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Budget:
    """How many values a file may still stand for, aliases counted as often as they are used."""

    def __init__(self) -> None:
        self._left = _MAX_NODES

    def spend(self, node: yaml.Node) -> None:
        self._left -= 1
        if self._left < 0:
            line = node.start_mark.line + 1
            raise ManifestError(f"line {line}: its aliases stand for more than {_MAX_NODES} values")


def _build(node: yaml.Node, path: str, lines: dict[str, int], budget: _Budget) -> Any:
    budget.spend(node)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        members: list[Any] = []
        for index, member in enumerate(cast(list[yaml.Node], node.value)):
            where = f"{path}[{index}]"
            lines[where] = member.start_mark.line + 1
            members.append(_build(member, where, lines, budget))
        return members
    return _build_mapping(node, path, lines, budget)


def _build_mapping(node: yaml.Node, path: str, lines: dict[str, int], budget: _Budget) -> Any:
    merged: dict[str, Any] = {}
    built: dict[str, Any] = {}
    for key, value in cast(list[tuple[yaml.Node, yaml.Node]], node.value):
        if not isinstance(key, yaml.ScalarNode):
            raise ManifestError(f"line {key.start_mark.line + 1}: a key must be a text")
        name = str(key.value)
        if name == "<<" and not key.style:
            merged = {**merged, **_merged(_build(value, path, {}, budget))}
            continue
        if name in built:
            raise ManifestError(f"line {key.start_mark.line + 1}: the key {name!r} stands there twice")
        where = f"{path}.{name}" if path else name
        lines[where] = key.start_mark.line + 1
        built[name] = _build(value, where, lines, budget)
    return {**merged, **built}


def _merged(sources: Any) -> dict[str, Any]:
    """The fields of a merge key's source or sources, of which the first counts."""
    fields: dict[str, Any] = {}
    for source in cast(list[Any], sources) if isinstance(sources, list) else [sources]:
        if isinstance(source, dict):
            fields = {**cast(dict[str, Any], source), **fields}
    return fields


def _scalar(node: yaml.ScalarNode) -> Any:
    """The value of a scalar by the rules of Kubernetes' YAML: no dates, no base 60, no `yes`."""
    written = str(node.value)
    if node.style or node.tag == "tag:yaml.org,2002:binary":
        return written
    if written in _NULL:
        return None
    if written in _TRUE or written in _FALSE:
        return written in _TRUE
    if len(written) <= _LONGEST_NUMBER:
        if _INTEGER.match(written):
            if node.tag == _TEXT and not written.lstrip("+-").startswith("0o"):
                return written  # `!!str 1`: the parser itself would have called it a number
            return _integer(written)
        if _FLOAT.match(written):
            return float(written)
    return written


def _integer(written: str) -> int:
    digits = written.lstrip("+-")
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") and digits != "0" else 10
    number = int(digits.removeprefix("0x").removeprefix("0o") if base != 10 else digits, base)
    return -number if written.startswith("-") else number


def _members(document: Document) -> Iterator[Document]:
    value = document.value
    if not isinstance(value, dict):
        yield document
        return
    fields = cast(dict[str, Any], value)
    if not str(fields.get("kind", "")).endswith("List") or not isinstance(fields.get("items"), list):
        yield document
        return
    for index, member in enumerate(cast(list[Any], fields["items"])):
        prefix = f"items[{index}]"
        lines = {
            path[len(prefix) + 1 :]: line for path, line in document.lines.items() if path.startswith(f"{prefix}.")
        }
        yield Document(member, document.lines.get(prefix, document.line), lines=lines)

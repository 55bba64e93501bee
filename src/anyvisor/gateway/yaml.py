"""YAML from strangers: plain data only, and no anchors, which a few bytes can make into gigabytes."""

from typing import Any, Final, cast

import yaml

EVENTS_LIMIT: Final = 100_000
"""Nodes and ends of nodes in a document: enough for the largest VM, little enough to read in a moment."""

_OPENING: Final = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING: Final = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


class YamlError(Exception):
    """The text is no YAML that is accepted here; the message says why."""


def decode_yaml(body: bytes, depth_limit: int) -> object:
    """Read one document; raises YamlError."""
    try:
        _check(body, depth_limit)
        return cast("object", yaml.load(body, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0] if str(error) else "unreadable"
        raise YamlError(reason) from error
    except (ValueError, TypeError) as error:
        raise YamlError(str(error)[:200]) from error


def _check(body: bytes, depth_limit: int) -> None:
    """Look at the document's structure before anything is built of it."""
    depth = 0
    events = cast("Any", yaml.parse(body, Loader=yaml.CSafeLoader))
    for number, event in enumerate(events):
        if isinstance(event, yaml.AliasEvent):
            raise YamlError("anchors and aliases are not accepted")
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > depth_limit:
            raise YamlError("it is nested too deeply")
        if number > EVENTS_LIMIT:
            raise YamlError("it is too large; send JSON")

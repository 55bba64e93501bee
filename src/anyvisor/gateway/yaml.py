"""YAML from strangers: plain data only, and no anchors, which a few bytes can make into gigabytes."""

from typing import Any

import yaml


class YamlError(Exception):
    """The text is no YAML that is accepted here; the message says why."""


class _Loader(yaml.SafeLoader):
    """Refuses aliases and deep nesting while it reads."""

    depth_limit = 64

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise YamlError("anchors and aliases are not accepted")
        self._depth += 1
        if self._depth > self.depth_limit:
            raise YamlError("it is nested too deeply")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def decode_yaml(body: bytes, depth: int) -> object:
    """Read one document; raises YamlError."""
    try:
        loader = _Loader(body)
        loader.depth_limit = depth
        return loader.get_single_data()
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0] if str(error) else "unreadable"
        raise YamlError(reason) from error
    except (ValueError, TypeError) as error:
        raise YamlError(str(error)[:200]) from error

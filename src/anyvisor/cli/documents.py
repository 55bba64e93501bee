"""YAML as kubectl writes it."""

from typing import Any

import yaml


def to_yaml(document: Any) -> str:
    """One document, keys in the order given."""
    return yaml.dump(document, Dumper=yaml.SafeDumper, sort_keys=False)  # pyright: ignore[reportUnknownMemberType]

"""YAML as kubectl writes it."""

from typing import Any, cast

import yaml


def to_yaml(document: Any) -> str:
    """One document, keys in the order given."""
    return yaml.dump(document, Dumper=yaml.SafeDumper, sort_keys=False)  # pyright: ignore[reportUnknownMemberType]


def from_yaml(text: str) -> list[dict[str, Any]]:
    """The mappings among the documents of a text.

    Raises:
        ValueError: it is no YAML.
    """
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ValueError(f"is no YAML: {error}") from error
    return [cast("dict[str, Any]", document) for document in documents if isinstance(document, dict)]

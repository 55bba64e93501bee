"""Telling apart what JSON can hold, so that the type checker follows."""

from collections.abc import Mapping
from typing import Any, TypeGuard


def is_map(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether the value is a JSON object."""
    return isinstance(value, Mapping)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether the value is a JSON array."""
    return isinstance(value, list)

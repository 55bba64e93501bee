"""What both halves of the translation use: the error, the check for unknown fields, quantities."""

from collections.abc import Collection, Mapping
from typing import Any

from anyvisor.api.meta import Json
from anyvisor.api.quantity import QuantityError, parse_quantity


class TranslateError(Exception):
    """A field of the VMI that cannot be told to a driver: its path and a sentence."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def only(value: Json, known: Collection[str], at: str, ignored: Mapping[str, object] | None = None) -> None:
    """Refuse fields that are not known; `ignored` ones are allowed with exactly that value, which asks for nothing."""
    for key, content in value.items():
        if key in known or content is None:
            continue
        if ignored is not None and key in ignored and content == ignored[key]:
            continue
        raise TranslateError(f"{at}.{key}", "is not served yet; remove the field, or choose a release that has it")


def quantity(value: Any, at: str, scale: int = 1) -> int:
    """A Kubernetes quantity times `scale`, rounded up to a whole number."""
    try:
        exact = parse_quantity(value).exact * scale
    except QuantityError as error:
        raise TranslateError(at, f"is no quantity: {error}") from error
    return -(-exact // 1)

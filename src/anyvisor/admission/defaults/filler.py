"""Filling in values and remembering where they came from."""

from typing import Any

from anyvisor.admission.result import Default
from anyvisor.admission.values import Obj, mapping, strings

BUILT_IN = "built-in default"


class Filler:
    """Fills values into an object that the caller owns."""

    __slots__ = ("filled",)

    def __init__(self) -> None:
        self.filled: list[Default] = []

    def set(self, holder: Obj, key: str, value: Any, at: str, source: str = BUILT_IN) -> None:
        """Set a value; `at` is the path of `holder`."""
        holder[key] = value
        self.filled.append(Default(f"{at}.{key}", source))

    def default(self, holder: Obj, key: str, value: Any, at: str, source: str = BUILT_IN) -> None:
        """Set a value where there is none (null counts as none)."""
        if holder.get(key) is None:
            self.set(holder, key, value, at, source)


def child(holder: Obj, key: str) -> Obj:
    """The object under a key, made when it is missing (or of a wrong kind, which the schema refuses)."""
    value = mapping(holder.get(key))
    holder[key] = value
    return value


def add_finalizer(metadata: Obj, finalizer: str) -> None:
    """Add a finalizer to the metadata once."""
    present = strings(metadata.get("finalizers"))
    if finalizer not in present:
        metadata["finalizers"] = [*present, finalizer]

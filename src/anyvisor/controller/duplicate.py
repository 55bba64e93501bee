"""Working copies of JSON objects. Passes make several, and going through bytes is many times faster than `copy`."""

from typing import Final, TypeVar

import msgspec

Value = TypeVar("Value")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def duplicate(value: Value) -> Value:
    """A copy of a JSON value that shares nothing with it."""
    return _decode(_encode(value))

"""Quantities of untrusted objects: reading never raises, and what is absent or unreadable counts as zero."""

from typing import Any

from anyvisor.api.quantity import NANO, Quantity, QuantityError, parse_quantity

__all__ = ["NANO", "binary", "milli", "nanos", "parse", "value"]


def parse(written: Any) -> Quantity | None:
    """The quantity, or None for what is none."""
    if isinstance(written, float):
        written = repr(written)
    elif not isinstance(written, (str, int)) or isinstance(written, bool):
        return None
    try:
        return parse_quantity(written)
    except QuantityError:
        return None


def nanos(written: Any) -> int:
    """The exact value, in units of 1e-9."""
    quantity = parse(written) if written is not None else None
    return quantity.nanos if quantity is not None else 0


def value(written: Any) -> int:
    """The value in whole units, rounded away from zero."""
    return _rounded(nanos(written), NANO)


def milli(written: Any) -> int:
    """The value in thousandths, rounded away from zero."""
    return _rounded(nanos(written), NANO // 1000)


def binary(amount: int) -> str:
    """The shortest text of a number of bytes, with a binary unit."""
    return str(Quantity.of_bytes(amount))


def _rounded(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount > 0 else amount // unit

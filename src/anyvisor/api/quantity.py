"""Kubernetes resource quantities (`1Gi`, `250m`, `1e3`), exactly: integers of 1e-9, never floats.

Follows `resource.Quantity` of apimachinery: values finer than 1e-9 are rounded away from zero, binary ones
are capped at 2^63-1, and the canonical text has the largest suffix that leaves an integer.
"""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final, Self

NANO: Final = 10**9
MAX_TEXT: Final = 256
"""Characters a quantity may have; more is refused before any arithmetic."""
MAX_EXPONENT: Final = 1000
"""Largest magnitude of a decimal exponent; bounds the size of the integers that hostile text can ask for."""
MAX_BINARY: Final = 2**63 - 1

_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<binary>[KMGTPE]i)|(?P<decimal>[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX: Final = {0: "", **{exponent: suffix for suffix, exponent in _DECIMAL.items()}}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class QuantityError(ValueError):
    """The text is no quantity. `cause` says why; the message names the text and the accepted form."""

    def __init__(self, text: str, cause: str) -> None:
        shown = text if len(text) <= 64 else text[:61] + "..."
        super().__init__(
            f"{shown!r} is not a quantity: {cause}; write a number with an optional suffix, as 512Mi, 2 or 250m"
        )
        self.text = text
        self.cause = cause


class Format(StrEnum):
    """How a quantity is written: the family of suffixes it came with."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount. Equality, order and hash look at the value alone: `1024Mi` equals `1Gi`."""

    nanos: int
    format: Format = field(default=Format.DECIMAL_SI, compare=False)

    @classmethod
    def of(cls, value: int | Fraction, form: Format = Format.DECIMAL_SI) -> Self:
        """The quantity of a whole number or fraction; finer than 1e-9 rounds away from zero."""
        return cls(_away_from_zero(value * NANO), form)

    @classmethod
    def of_bytes(cls, value: int | Fraction) -> Self:
        """The quantity of a number of bytes, written with binary suffixes."""
        return cls.of(value, Format.BINARY_SI)

    @property
    def value(self) -> int:
        """The whole number, rounded away from zero (as `Quantity.Value()`)."""
        return _away_from_zero(Fraction(self.nanos, NANO))

    @property
    def milli(self) -> int:
        """Thousandths, rounded away from zero (as `Quantity.MilliValue()`)."""
        return _away_from_zero(Fraction(self.nanos, NANO // 1000))

    @property
    def exact(self) -> Fraction:
        """The value without any rounding."""
        return Fraction(self.nanos, NANO)

    @property
    def is_integer(self) -> bool:
        """Whether the value is a whole number."""
        return self.nanos % NANO == 0

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, self.format if self.nanos else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.format if self.nanos else other.format)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.format)

    def __mul__(self, factor: int | Fraction) -> "Quantity":
        return Quantity(_away_from_zero(self.nanos * factor), self.format)

    __rmul__ = __mul__

    def __str__(self) -> str:
        """The canonical text."""
        if self.nanos == 0:
            return "0"
        if self.format is Format.BINARY_SI and self.is_integer and abs(self.nanos) >= 1024 * NANO:
            return _binary_text(self.nanos // NANO)
        return _decimal_text(self.nanos, self.format)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    if len(text) > MAX_TEXT:
        raise QuantityError(text, f"it is longer than {MAX_TEXT} characters")
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise QuantityError(text, "it does not match <sign><digits><.digits><suffix>")
    digits = (match["whole"] or "") + (match["part"] or match["only"] or "")
    scale = -len(match["part"] or match["only"] or "")
    amount = int(digits)
    form = Format.DECIMAL_SI
    if match["binary"]:
        form = Format.BINARY_SI
        amount *= 1024 ** _BINARY.index(match["binary"])
    elif match["decimal"]:
        scale += _DECIMAL[match["decimal"]]
    elif match["exponent"]:
        form = Format.DECIMAL_EXPONENT
        exponent = int(match["exponent"])
        if abs(exponent) > MAX_EXPONENT:
            raise QuantityError(text, f"its exponent is beyond {MAX_EXPONENT}")
        scale += exponent
    nanos = _away_from_zero(amount * Fraction(10) ** (scale + 9))
    if form is Format.BINARY_SI:
        nanos = min(nanos, MAX_BINARY * NANO)
        if 0 < nanos < NANO:
            form = Format.DECIMAL_SI
    return Quantity(-nanos if match["sign"] == "-" else nanos, form)


def parse_quantity(value: str | int) -> Quantity:
    """The quantity that a JSON string or integer stands for; raises `QuantityError`."""
    if isinstance(value, bool):
        raise QuantityError(str(value).lower(), "it is a boolean")
    if isinstance(value, int):
        if abs(value) > 10**MAX_TEXT:
            raise QuantityError("a number", f"it has more than {MAX_TEXT} digits")
        return Quantity.of(value)
    return _parse(value)


def canonical(value: str | int) -> str:
    """The canonical text of a quantity: `1024Mi` -> `1Gi`, `0.5` -> `500m`."""
    return str(parse_quantity(value))


def _away_from_zero(value: int | Fraction) -> int:
    if isinstance(value, int):
        return value
    whole = -(-abs(value.numerator) // value.denominator)
    return whole if value >= 0 else -whole


def _binary_text(amount: int) -> str:
    index = 0
    while index < len(_BINARY) - 1 and amount % 1024 == 0:
        amount //= 1024
        index += 1
    return f"{amount}{_BINARY[index]}"


def _decimal_text(nanos: int, form: Format) -> str:
    exponent = -9
    while nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    if form is Format.DECIMAL_EXPONENT or exponent not in _DECIMAL_SUFFIX:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[exponent]}"

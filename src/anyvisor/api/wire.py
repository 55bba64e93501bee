"""How scalar values stand in JSON, and the facts for a CRD that a Python type cannot say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias

_NUMBER: Final = r"(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
QUANTITY_PATTERN: Final = rf"^(\+|-)?{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?{_NUMBER}))?$"


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """What a field's OpenAPI schema says beyond its type. Only CRD generation reads it; decoding does not.

    `keys` makes a list a map of its items by those fields, `unique` a set; `facts` are further members of the
    schema as they stand there; `rules` are CEL expressions; a `hidden` field stands in no CRD.
    """

    keys: tuple[str, ...] = ()
    unique: bool = False
    nullable: bool = False
    opaque: bool = False
    hidden: bool = False
    rules: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


Int32: TypeAlias = Annotated[int, Schema(facts={"format": "int32"})]
Int64: TypeAlias = Annotated[int, Schema(facts={"format": "int64"})]
QuantityValue: TypeAlias = Annotated[int | str, Schema(facts={"pattern": QUANTITY_PATTERN})]
"""A quantity as written; `quantity.parse_quantity` gives its value."""
IntOrString: TypeAlias = Annotated[int | str, Schema()]
Time: TypeAlias = Annotated[str, Schema(facts={"format": "date-time"})]
"""An RFC 3339 time, as Kubernetes writes it: `2026-01-31T10:00:00Z`."""
Duration: TypeAlias = str
"""A duration as Go writes it (`1h30m`); `duration.parse_duration` gives its value."""

"""Absent is never "no": find what a request says and the receiver would silently skip."""

from collections.abc import Collection, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from anyvisor.hri.errors import Refused, finding
from anyvisor.hri.v1.types_pb2 import Finding


def refuse_unknown(message: Message, what: str) -> None:
    """Refuse a message with fields or enum values that this driver's proto does not have (a newer core's)."""
    findings = list(_unknown(message, ""))
    if findings:
        raise Refused(
            f"{what} says things that this driver's HRI minor does not know: {findings[0].message}; "
            "upgrade the driver, or leave them out",
            findings=findings,
        )


def _unknown(message: Message, path: str) -> Iterator[Finding]:
    # The stubs of protobuf declare UnknownFieldSet without its element type.
    for unknown in UnknownFieldSet(message):
        yield finding(
            "FIELD_UNKNOWN",
            f"{path or message.DESCRIPTOR.name} has an unknown field with number {unknown.field_number}",
            field=path,
            want="an older form",
        )
    for field, value in message.ListFields():
        name = f"{path}.{field.name}" if path else field.name
        for item_path, item in _items(field, value, name):
            if isinstance(item, Message):
                yield from _unknown(item, item_path)
            elif field.enum_type is not None and item not in field.enum_type.values_by_number:
                yield finding(
                    "VALUE_UNKNOWN",
                    f"{item_path} has the unknown value {item}",
                    field=item_path,
                    have=str(item),
                )


def refuse_unhonoured(message: Message, honoured: Collection[str], driver: str) -> None:
    """Refuse a message that sets a field outside `honoured`.

    Paths are written without indexes: `disks.serial`. A path covers all below it: `identity` honours the whole
    message. A oneof's message without content (`Rng`) is honoured by its own path.
    """
    findings = list(_unhonoured(message, frozenset(honoured), "", ""))
    if findings:
        raise Refused(
            f"{driver} cannot honour {findings[0].field}"
            + (f" and {len(findings) - 1} more fields" if len(findings) > 1 else ""),
            findings=findings,
        )


def _unhonoured(message: Message, honoured: frozenset[str], plain: str, path: str) -> Iterator[Finding]:
    for field, value in message.ListFields():
        plain_name = f"{plain}.{field.name}" if plain else field.name
        name = f"{path}.{field.name}" if path else field.name
        if plain_name in honoured:
            continue
        for item_path, item in _items(field, value, name):
            if isinstance(item, Message) and any(h.startswith(plain_name + ".") for h in honoured):
                yield from _unhonoured(item, honoured, plain_name, item_path)
            else:
                yield finding(
                    "CAP_NO",
                    f"{item_path} is not supported by this driver",
                    field=item_path,
                    have="not supported",
                )


def _items(field: FieldDescriptor, value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The values of a set field with their paths; protobuf's containers are known only at run time."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        yield from ((f"{name}[{key}]", item) for key, item in value.items())
    elif field.is_repeated:
        yield from ((f"{name}[{index}]", item) for index, item in enumerate(value))
    else:
        yield name, value

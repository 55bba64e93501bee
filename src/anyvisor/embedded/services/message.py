"""DNS messages as far as answers from a table need them: RFC 1035, 2782 (SRV) and 6891 (EDNS). Pure.

A query comes from a guest and is hostile: what is malformed is no question.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Final

_HEADER: Final = struct.Struct("!HHHHHH")
_RECORD: Final = struct.Struct("!HHIH")
_INTERNET: Final = 1
_OPT: Final = 41
PLAIN_UDP: Final = 512
TTL: Final = 5
NO_ERROR, NO_NAME = 0, 3
Name = tuple[str, ...]


class Kind(IntEnum):
    """Types of records."""

    A = 1
    CNAME = 5
    SOA = 6
    PTR = 12
    TXT = 16
    SRV = 33
    ANY = 255


@dataclass(frozen=True, slots=True)
class Question:
    """One query for one name."""

    number: int
    flags: int
    name: Name
    """In lower case."""
    kind: int
    raw: bytes
    """As it was asked, to be repeated."""
    udp_bytes: int
    """What the client takes over UDP."""
    extended: bool


@dataclass(frozen=True, slots=True)
class Record:
    """One answer."""

    name: Name
    kind: Kind
    data: bytes


def parse(packet: bytes) -> Question | None:
    """The question of a packet, or None when it is none that a table could answer."""
    if len(packet) < _HEADER.size:
        return None
    number, flags, questions, answers, authorities, additional = _HEADER.unpack_from(packet)
    if flags & 0xF800 or (questions, answers, authorities) != (1, 0, 0):
        return None
    name, at = _name_at(packet, _HEADER.size)
    if name is None or at + 4 > len(packet):
        return None
    kind, family = struct.unpack_from("!HH", packet, at)
    if family != _INTERNET:
        return None
    raw = packet[_HEADER.size : at + 4]
    size = _extended_size(packet[at + 4 :]) if additional else 0
    return Question(number, flags, name, kind, raw, max(size, PLAIN_UDP), extended=size > 0)


def _name_at(packet: bytes, at: int) -> tuple[Name | None, int]:
    labels: list[str] = []
    while at < len(packet):
        length = packet[at]
        if length == 0:
            return tuple(labels), at + 1
        if length > 63 or len(labels) >= 127:
            return None, at
        labels.append(packet[at + 1 : at + 1 + length].decode("ascii", "replace").lower())
        at += 1 + length
    return None, at


def _extended_size(rest: bytes) -> int:
    """The size that an OPT record states; 0 when there is none."""
    if len(rest) < 11 or rest[0] != 0 or int.from_bytes(rest[1:3], "big") != _OPT:
        return 0
    return max(int.from_bytes(rest[3:5], "big"), PLAIN_UDP)


def encode_name(name: Name) -> bytes:
    """A name without compression."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name) + b"\0"


def address(name: Name, to: IPv4Address) -> Record:
    """An A record."""
    return Record(name, Kind.A, to.packed)


def service(name: Name, port: int, target: Name) -> Record:
    """An SRV record."""
    return Record(name, Kind.SRV, struct.pack("!HHH", 0, 100, port) + encode_name(target))


def alias(name: Name, target: Name) -> Record:
    """A CNAME record."""
    return Record(name, Kind.CNAME, encode_name(target))


def pointer(name: Name, target: Name) -> Record:
    """A PTR record."""
    return Record(name, Kind.PTR, encode_name(target))


def text(name: Name, value: str) -> Record:
    """A TXT record."""
    return Record(name, Kind.TXT, bytes([len(value)]) + value.encode())


def authority(zone: Name) -> Record:
    """The SOA record of a zone: how long a missing name is remembered."""
    data = encode_name(("ns", "dns", *zone)) + encode_name(("hostmaster", *zone))
    return Record(zone, Kind.SOA, data + struct.pack("!IIIII", 1, 7200, 1800, 86400, TTL))


def answer(question: Question, code: int, records: Sequence[Record], zone: Name, limit: int) -> bytes:
    """The reply; with its truncation flag where it does not fit into `limit` bytes."""
    soa = [] if records else [authority(zone)]
    flags = 0x8480 | (question.flags & 0x0110) | code
    extra = struct.pack("!BHHIH", 0, _OPT, 4096, 0, 0) if question.extended else b""
    body = b"".join(_encode(record) for record in (*records, *soa))
    whole = len(question.raw) + _HEADER.size + len(body) + len(extra)
    if whole > limit:
        header = _HEADER.pack(question.number, flags | 0x0200, 1, 0, 0, 1 if extra else 0)
        return header + question.raw + extra
    header = _HEADER.pack(question.number, flags, 1, len(records), len(soa), 1 if extra else 0)
    return header + question.raw + body + extra


def _encode(record: Record) -> bytes:
    head = encode_name(record.name) + _RECORD.pack(record.kind, _INTERNET, TTL, len(record.data))
    return head + record.data

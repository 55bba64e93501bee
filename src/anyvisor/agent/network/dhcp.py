"""A DHCP server for one guest on one link, without I/O: RFC 2131 and 2132 as far as such a guest needs.

There is one address to give, for ever, to whoever asks on this link: nobody else is on it. Packets come from the
guest and are hostile: anything that is malformed is dropped.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network
from typing import Final

SERVER_PORT: Final = 67
CLIENT_PORT: Final = 68
MAX_PACKET: Final = 1500
FOREVER: Final = 0xFFFFFFFF
_HEADER: Final = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s")
_COOKIE: Final = b"\x63\x82\x53\x63"
_ETHERNET: Final = 1
_REQUEST, _REPLY = 1, 2
_BROADCAST: Final = 0x8000
_OPTION_BYTES: Final = 255
_MIN_REPLY: Final = 300


class MessageType(IntEnum):
    """Option 53."""

    DISCOVER = 1
    OFFER = 2
    REQUEST = 3
    DECLINE = 4
    ACK = 5
    NAK = 6
    RELEASE = 7
    INFORM = 8


_KINDS: Final = frozenset(int(kind) for kind in MessageType)


class Option(IntEnum):
    """The options that are read or written here."""

    PAD = 0
    SUBNET_MASK = 1
    ROUTER = 3
    DNS = 6
    HOST_NAME = 12
    DOMAIN = 15
    MTU = 26
    NTP = 42
    REQUESTED_ADDRESS = 50
    LEASE_TIME = 51
    MESSAGE_TYPE = 53
    SERVER = 54
    TFTP_SERVER = 66
    BOOT_FILE = 67
    DOMAIN_SEARCH = 119
    CLASSLESS_ROUTES = 121
    END = 255


@dataclass(frozen=True, slots=True)
class Lease:
    """What the guest is told."""

    address: IPv4Address
    network: IPv4Network
    gateway: IPv4Address
    """The router, and this server where `server` names none."""
    dns: tuple[IPv4Address, ...] = ()
    hostname: str = ""
    search: tuple[str, ...] = ()
    mtu: int = 0
    ntp: tuple[IPv4Address, ...] = ()
    tftp_server: str = ""
    boot_file: str = ""
    private: tuple[tuple[int, str], ...] = ()
    server: IPv4Address | None = None
    routes: tuple[tuple[IPv4Network, IPv4Address], ...] = ()
    """(network, router; 0.0.0.0 = on the link). They stand above the router (RFC 3442)."""

    @property
    def identity(self) -> IPv4Address:
        """This server."""
        return self.server or self.gateway


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a client's packet that matter."""

    kind: MessageType
    transaction: int
    flags: int
    client: IPv4Address
    hardware: bytes
    requested: IPv4Address | None
    server: IPv4Address | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A packet, and the address to send it to."""

    data: bytes
    destination: IPv4Address


def parse(packet: bytes) -> Request | None:
    """The request, or None when it is none."""
    if not _HEADER.size + len(_COOKIE) <= len(packet) <= MAX_PACKET:
        return None
    fields = _HEADER.unpack_from(packet)
    operation, hardware_type, hardware_length = fields[0:3]
    if (operation, hardware_type, hardware_length) != (_REQUEST, _ETHERNET, 6):
        return None
    if packet[_HEADER.size : _HEADER.size + 4] != _COOKIE:
        return None
    options = _options(packet[_HEADER.size + 4 :])
    kind = options.get(Option.MESSAGE_TYPE, b"")
    if len(kind) != 1 or kind[0] not in _KINDS:
        return None
    return Request(
        kind=MessageType(kind[0]),
        transaction=fields[4],
        flags=fields[6],
        client=IPv4Address(fields[7]),
        hardware=fields[11],
        requested=_address(options.get(Option.REQUESTED_ADDRESS)),
        server=_address(options.get(Option.SERVER)),
    )


def _options(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    position = 0
    while position < len(data):
        code = data[position]
        if code == Option.END:
            break
        if code == Option.PAD:
            position += 1
            continue
        if position + 2 > len(data):
            break
        length = data[position + 1]
        value = data[position + 2 : position + 2 + length]
        if len(value) != length:
            break
        found.setdefault(code, value)
        position += 2 + length
    return found


def _address(value: bytes | None) -> IPv4Address | None:
    return IPv4Address(value) if value is not None and len(value) == 4 else None


def answer(lease: Lease, packet: bytes) -> Answer | None:
    """The reply to a packet, or None when it gets none."""
    request = parse(packet)
    if request is None:
        return None
    match request.kind:
        case MessageType.DISCOVER:
            return _reply(lease, request, MessageType.OFFER)
        case MessageType.REQUEST:
            if request.server is not None and request.server != lease.identity:
                return None  # the client chose another server
            wanted = request.requested or request.client
            good = wanted == lease.address
            return _reply(lease, request, MessageType.ACK if good else MessageType.NAK)
        case MessageType.INFORM:
            return _reply(lease, request, MessageType.ACK)
        case _:
            return None  # a guest that declines or releases its address gets it again when it asks


def _reply(lease: Lease, request: Request, kind: MessageType) -> Answer:
    refused = kind == MessageType.NAK
    informed = request.kind == MessageType.INFORM
    options = [_option(Option.MESSAGE_TYPE, bytes([kind])), _option(Option.SERVER, lease.identity.packed)]
    if not refused:
        if not informed:
            options.append(_option(Option.LEASE_TIME, struct.pack("!I", FOREVER)))
        options += _settings(lease)
    zero = IPv4Address(0).packed
    header = _HEADER.pack(
        *(_REPLY, _ETHERNET, 6, 0, request.transaction, 0, request.flags),
        request.client.packed if informed else zero,
        zero if refused or informed else lease.address.packed,
        lease.identity.packed,
        zero,
        request.hardware,
        b"",
        lease.boot_file.encode()[:127],
    )
    data = header + _COOKIE + b"".join(options) + bytes([Option.END])
    direct = int(request.client) != 0 and not refused and not request.flags & _BROADCAST
    return Answer(data.ljust(_MIN_REPLY, b"\0"), request.client if direct else IPv4Address("255.255.255.255"))


def _settings(lease: Lease) -> list[bytes]:
    options = [
        _option(Option.SUBNET_MASK, lease.network.netmask.packed),
        _option(Option.ROUTER, lease.gateway.packed),
    ]
    if lease.routes:
        options.append(_option(Option.CLASSLESS_ROUTES, b"".join(_route(*route) for route in lease.routes)))
    if lease.dns:
        options.append(_option(Option.DNS, _addresses(lease.dns)))
    if lease.hostname:
        options.append(_option(Option.HOST_NAME, lease.hostname.encode()))
    if lease.search:
        options.append(_option(Option.DOMAIN, lease.search[0].encode()))
        options.append(_option(Option.DOMAIN_SEARCH, b"".join(_name(domain) for domain in lease.search)))
    if lease.mtu:
        options.append(_option(Option.MTU, struct.pack("!H", lease.mtu)))
    if lease.ntp:
        options.append(_option(Option.NTP, _addresses(lease.ntp)))
    if lease.tftp_server:
        options.append(_option(Option.TFTP_SERVER, lease.tftp_server.encode()))
    if lease.boot_file:
        options.append(_option(Option.BOOT_FILE, lease.boot_file.encode()))
    options += [_option(code, value.encode()) for code, value in lease.private]
    return options


def _route(network: IPv4Network, router: IPv4Address) -> bytes:
    """A destination, as short as its prefix, and the way there."""
    octets = (network.prefixlen + 7) // 8
    return bytes([network.prefixlen]) + network.network_address.packed[:octets] + router.packed


def _option(code: int, value: bytes) -> bytes:
    value = value[:_OPTION_BYTES]
    return bytes([code, len(value)]) + value


def _addresses(addresses: Sequence[IPv4Address]) -> bytes:
    return b"".join(address.packed for address in addresses[:8])


def _name(domain: str) -> bytes:
    """A domain in DNS form (RFC 3397), without compression; nothing when it is none."""
    labels = [label.encode() for label in domain.strip(".").split(".")]
    if not all(1 <= len(label) <= 63 for label in labels):
        return b""
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"

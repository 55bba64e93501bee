"""The DHCP core against packets of real clients, and against rubbish."""

import struct
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.agent.network import dhcp
from anyvisor.agent.network.dhcp import Lease, MessageType, Option

MAC = bytes.fromhex("020000000007")
LEASE = Lease(
    address=IPv4Address("10.0.2.2"),
    network=IPv4Network("10.0.2.0/24"),
    gateway=IPv4Address("10.0.2.1"),
    dns=(IPv4Address("192.0.2.53"), IPv4Address("192.0.2.54")),
    hostname="alpha",
    search=("default.svc.cluster.local", "example.com"),
    mtu=1400,
    ntp=(IPv4Address("192.0.2.1"),),
    tftp_server="tftp.example.com",
    boot_file="boot.img",
    private=((240, "private value"),),
)
BROADCAST = IPv4Address("255.255.255.255")


def packet(
    kind: int | None,
    *options: tuple[int, bytes],
    client: str = "0.0.0.0",
    flags: int = 0,
    cookie: bytes = b"\x63\x82\x53\x63",
) -> bytes:
    header = struct.pack("!BBBBIHH", 1, 1, 6, 0, 0xDEADBEEF, 0, flags)
    header += IPv4Address(client).packed + bytes(12) + MAC.ljust(16, b"\0") + bytes(192)
    tail = b"" if kind is None else bytes([Option.MESSAGE_TYPE, 1, kind])
    tail += b"".join(bytes([code, len(value)]) + value for code, value in options)
    return header + cookie + tail + b"\xff"


def read(data: bytes) -> tuple[IPv4Address, dict[int, bytes]]:
    """The offered address and the options of a reply."""
    assert len(data) >= 300
    assert data[0] == 2
    assert data[4:8] == bytes.fromhex("deadbeef")
    assert data[28:34] == MAC
    options: dict[int, bytes] = {}
    position = 240
    while data[position] != Option.END:
        code, length = data[position], data[position + 1]
        options[code] = data[position + 2 : position + 2 + length]
        position += 2 + length
    return IPv4Address(data[16:20]), options


def test_a_discover_is_offered_everything() -> None:
    answer = dhcp.answer(LEASE, packet(MessageType.DISCOVER))
    assert answer is not None
    assert answer.destination == BROADCAST
    address, options = read(answer.data)
    assert address == LEASE.address
    assert options == {
        Option.MESSAGE_TYPE: bytes([MessageType.OFFER]),
        Option.SERVER: LEASE.gateway.packed,
        Option.LEASE_TIME: b"\xff\xff\xff\xff",
        Option.SUBNET_MASK: bytes([255, 255, 255, 0]),
        Option.ROUTER: LEASE.gateway.packed,
        Option.DNS: LEASE.dns[0].packed + LEASE.dns[1].packed,
        Option.HOST_NAME: b"alpha",
        Option.DOMAIN: b"default.svc.cluster.local",
        Option.DOMAIN_SEARCH: b"\x07default\x03svc\x07cluster\x05local\0\x07example\x03com\0",
        Option.MTU: struct.pack("!H", 1400),
        Option.NTP: LEASE.ntp[0].packed,
        Option.TFTP_SERVER: b"tftp.example.com",
        Option.BOOT_FILE: b"boot.img",
        240: b"private value",
    }


REQUESTED = (Option.REQUESTED_ADDRESS, LEASE.address.packed)
SERVER = (Option.SERVER, LEASE.gateway.packed)


@pytest.mark.parametrize(
    ("request_packet", "kind"),
    [
        (packet(MessageType.REQUEST, REQUESTED, SERVER), MessageType.ACK),  # after an offer
        (packet(MessageType.REQUEST, REQUESTED), MessageType.ACK),  # after a reboot
        (packet(MessageType.REQUEST, client="10.0.2.2"), MessageType.ACK),  # a renewal
        (packet(MessageType.REQUEST, (Option.REQUESTED_ADDRESS, bytes([192, 168, 0, 9]))), MessageType.NAK),
        (packet(MessageType.REQUEST), MessageType.NAK),
        (packet(MessageType.INFORM, client="10.0.2.2"), MessageType.ACK),
    ],
)
def test_requests(request_packet: bytes, kind: MessageType) -> None:
    answer = dhcp.answer(LEASE, request_packet)
    assert answer is not None
    _, options = read(answer.data)
    assert options[Option.MESSAGE_TYPE] == bytes([kind])


def test_renewal_is_answered_to_the_client_itself() -> None:
    renewal = dhcp.answer(LEASE, packet(MessageType.REQUEST, client="10.0.2.2"))
    assert renewal is not None
    assert renewal.destination == LEASE.address
    shy = dhcp.answer(LEASE, packet(MessageType.REQUEST, client="10.0.2.2", flags=0x8000))
    assert shy is not None
    assert shy.destination == BROADCAST


@pytest.mark.parametrize(
    "ignored",
    [
        packet(MessageType.RELEASE, client="10.0.2.2"),
        packet(MessageType.DECLINE, REQUESTED),
        packet(MessageType.OFFER),
        packet(MessageType.REQUEST, REQUESTED, (Option.SERVER, bytes([10, 0, 2, 99]))),  # another server's client
        packet(None),
        packet(77),
        packet(MessageType.DISCOVER, cookie=b"BAD!"),
        packet(MessageType.DISCOVER)[:200],
        packet(MessageType.DISCOVER).ljust(2000, b"\0"),
        b"",
    ],
)
def test_what_gets_no_answer(ignored: bytes) -> None:
    assert dhcp.answer(LEASE, ignored) is None


@given(st.binary(max_size=600), st.booleans())
def test_no_guest_can_break_it(tail: bytes, whole: bool) -> None:
    data = packet(MessageType.DISCOVER)[:240] + tail if whole else tail
    answer = dhcp.answer(LEASE, data)
    assert answer is None or read(answer.data)[1][Option.SERVER] == LEASE.gateway.packed


def test_long_values_are_cut_to_what_an_option_holds() -> None:
    lease = Lease(LEASE.address, LEASE.network, LEASE.gateway, private=((240, "x" * 1000),), search=("a" * 64,))
    answer = dhcp.answer(lease, packet(MessageType.DISCOVER))
    assert answer is not None
    assert len(read(answer.data)[1][240]) == 255

"""Names of Services, as packets."""

import struct
from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.embedded.services import name_server
from anyvisor.embedded.services.message import encode_name, parse

Json = dict[str, Any]
Known = tuple[Json, list[Json]]
NOTHING: list[bytes] = []
A, SRV, TXT, PTR, CNAME, AAAA = 1, 33, 16, 12, 5, 28


class Table:
    """Services as the cache has them."""

    def __init__(self, known: dict[tuple[str, str], Known]) -> None:
        self.known = known

    def service(self, namespace: str, name: str) -> Json | None:
        found = self.known.get((namespace, name))
        return found[0] if found else None

    def slices(self, namespace: str, name: str) -> list[Json]:
        found = self.known.get((namespace, name))
        return found[1] if found else []

    def services(self) -> Iterable[Json]:
        return [service for service, _ in self.known.values()]


def entry(name: str, cluster_ip: str, *hosts: tuple[str, str], **spec: Any) -> tuple[Json, list[Json]]:
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    service = {
        "metadata": {"name": name, "namespace": "lab"},
        "spec": {"clusterIP": cluster_ip, "ports": ports, **spec},
    }
    endpoints = [{"addresses": [ip], "conditions": {"ready": True}, "hostname": host} for host, ip in hosts]
    return service, [{"ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints}]


def table() -> Table:
    known = {
        ("lab", "web"): entry("web", "10.96.0.5"),
        ("lab", "db"): entry("db", "None", ("one", "10.64.0.2"), ("", "10.64.0.3")),
        ("lab", "out"): entry("out", "", type="ExternalName", externalName="example.org"),
        ("lab", "empty"): entry("empty", "None"),
    }
    return Table(known)


def query(name: str, kind: int, size: int = 0) -> bytes:
    opt = struct.pack("!BHHIH", 0, 41, size, 0, 0) if size else b""
    head = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 1 if size else 0)
    return head + encode_name(tuple(name.split("."))) + struct.pack("!HH", kind, 1) + opt


def ask(name: str, kind: int = A) -> tuple[int, list[bytes]] | None:
    """(code, data of the records of that type)."""
    packet = query(name, kind)
    answer = name_server.answer(table(), packet, 4096)
    if answer is None:
        return None
    number, flags, _, count, _, _ = struct.unpack_from("!HHHHHH", answer)
    assert (number, flags & 0x8000) == (7, 0x8000)
    at, found = len(packet), list[bytes]()
    for _ in range(count):
        at += answer.index(0, at) - at + 1
        record_kind, _, _, size = struct.unpack_from("!HHIH", answer, at)
        at += 10
        assert record_kind in (kind, CNAME)
        found.append(answer[at : at + size])
        at += size
    return flags & 15, sorted(found)


def ip(*texts: str) -> list[bytes]:
    return [IPv4Address(text).packed for text in texts]


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("web.lab.svc.cluster.local", A, (0, ip("10.96.0.5"))),
        ("WEB.Lab.svc.Cluster.local", A, (0, ip("10.96.0.5"))),
        ("web.lab.svc.cluster.local", AAAA, (0, NOTHING)),
        ("web.other.svc.cluster.local", A, (3, NOTHING)),
        ("x.web.lab.svc.cluster.local", A, (3, NOTHING)),
        ("db.lab.svc.cluster.local", A, (0, ip("10.64.0.2", "10.64.0.3"))),
        ("one.db.lab.svc.cluster.local", A, (0, ip("10.64.0.2"))),
        ("10-64-0-3.db.lab.svc.cluster.local", A, (0, ip("10.64.0.3"))),
        ("two.db.lab.svc.cluster.local", A, (3, NOTHING)),
        ("empty.lab.svc.cluster.local", A, (0, NOTHING)),
        ("10-64-0-9.lab.pod.cluster.local", A, (0, ip("10.64.0.9"))),
        ("out.lab.svc.cluster.local", A, (0, [encode_name(("example", "org"))])),
        ("dns-version.cluster.local", TXT, (0, [b"\x051.1.0"])),
        (
            "_http._tcp.web.lab.svc.cluster.local",
            SRV,
            (0, [struct.pack("!HHH", 0, 100, 80) + encode_name(("web", "lab", "svc", "cluster", "local"))]),
        ),
        ("_http._udp.web.lab.svc.cluster.local", SRV, (3, NOTHING)),
        ("5.0.96.10.in-addr.arpa", PTR, (0, [encode_name(("web", "lab", "svc", "cluster", "local"))])),
        ("2.0.64.10.in-addr.arpa", PTR, (0, [encode_name(("one", "db", "lab", "svc", "cluster", "local"))])),
        ("svc.cluster.local", A, (0, NOTHING)),
        ("nonsense.cluster.local", A, (3, NOTHING)),
    ],
)
def test_names(name: str, kind: int, expected: tuple[int, list[bytes]]) -> None:
    assert ask(name, kind) == expected


def test_the_ports_of_a_headless_service_are_those_of_its_hosts() -> None:
    found = ask("_http._tcp.db.lab.svc.cluster.local", SRV)
    assert found is not None
    assert [data[4:6] for data in found[1]] == [(8080).to_bytes(2, "big")] * 2


@pytest.mark.parametrize("name", ["example.org", "cluster.local.example.org", "9.9.9.9.in-addr.arpa"])
def test_other_names_are_left_to_the_hosts_resolver(name: str) -> None:
    assert ask(name, PTR if name.endswith("arpa") else A) is None


def test_what_does_not_fit_is_asked_for_again_over_tcp() -> None:
    many = Table({("lab", "db"): entry("db", "None", *(("", f"10.64.1.{n}") for n in range(1, 60)))})
    name = "db.lab.svc.cluster.local"
    small = name_server.answer(many, query(name, A), 4096)
    assert small is not None
    assert len(small) <= 512
    assert small[2] & 0x02, "truncated"
    large = name_server.answer(many, query(name, A, 4096), 4096)
    assert large is not None
    assert not large[2] & 0x02
    assert large[-11:-8] == b"\0\0\x29", "it says that it understood the size"
    assert name_server.answer(many, query(name, A), 0xFFFF) is not None


@given(st.binary(max_size=80))
def test_bytes_of_a_guest_are_a_question_or_nothing(packet: bytes) -> None:
    parse(packet)
    name_server.answer(table(), packet, 512)
    damaged = query("web.lab.svc.cluster.local", A)[: len(packet)] + packet
    name_server.answer(table(), damaged, 512)

"""Which name servers a guest is told."""

from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest

from anyvisor.agent.network.resolver import Resolver, choose, read

PLAIN = "search example.com sub.example.com\nnameserver 192.0.2.1 # first\nnameserver 192.0.2.2\n"
STUB = "nameserver 127.0.0.53\noptions edns0\nsearch corp.example\n"


@pytest.mark.parametrize(
    ("texts", "servers", "relayed", "search"),
    [
        ([PLAIN], ["192.0.2.1", "192.0.2.2"], None, ("example.com", "sub.example.com")),
        ([STUB, PLAIN], ["192.0.2.1", "192.0.2.2"], None, ("corp.example",)),
        ([STUB], [], "127.0.0.53", ("corp.example",)),
        (["nameserver ::1\n"], [], "::1", ()),
        (["nameserver fe80::1%eth0\n"], [], "fe80::1", ()),
        (["nameserver 127.0.0.1\nnameserver 192.0.2.9\n"], ["192.0.2.9"], None, ()),
        ([f"nameserver 192.0.2.{n}\n" for n in range(1)], ["192.0.2.0"], None, ()),
        (["".join(f"nameserver 192.0.2.{n}\n" for n in range(9))], ["192.0.2.0", "192.0.2.1", "192.0.2.2"], None, ()),
        (["nameserver nonsense\nnameserver\n; comment\n\n"], [], None, ()),
        ([], [], None, ()),
        (["domain example.org\nsearch .\n"], [], None, ()),
    ],
)
def test_choice(texts: list[str], servers: list[str], relayed: str | None, search: tuple[str, ...]) -> None:
    expected = tuple(IPv4Address(server) for server in servers)
    assert choose(texts) == Resolver(expected, ip_address(relayed) if relayed else None, search)


def test_files_that_are_not_there_are_no_files(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text(PLAIN)
    assert read([tmp_path / "missing", tmp_path / "resolv.conf"]).servers[0] == IPv4Address("192.0.2.1")
    assert read([tmp_path / "missing"]) == Resolver()

"""Cluster IPs, node ports and names on the real kernel, with sockets in pods' namespaces; needs root."""

import asyncio
import os
import secrets
import socket
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TypeVar

import pytest

from anyvisor.agent.network import resolver
from anyvisor.agent.network.namespace import inside, run_nft
from anyvisor.embedded import podnetwork
from anyvisor.embedded.podnetwork import BridgedPods, plans
from anyvisor.embedded.services import name_server
from anyvisor.embedded.services.message import encode_name
from anyvisor.embedded.services.name_server import NameServer
from anyvisor.embedded.services.rules import Ground, ruleset
from anyvisor.embedded.services.targets import ServedPort, Target
from tests.machine.conftest import everything

T = TypeVar("T")
VIP = IPv4Address("10.127.200.9")
EMPTY = IPv4Address("10.127.200.10")
SERVICES = IPv4Network("10.127.200.0/22", strict=False)
NODE_PORT = 30999


@pytest.fixture
def instance() -> str:
    if problem := podnetwork.problem():
        pytest.skip(problem)
    return secrets.token_hex(4)


@pytest.fixture
async def pods(instance: str, rundir: Path) -> AsyncGenerator[BridgedPods]:
    networks = BridgedPods(instance, rundir / instance / "podnetwork.json", SERVICES)
    yield networks
    await networks.clean_up()


class Pod:
    """One pod: sockets are opened in its namespace."""

    def __init__(self, address: str, netns: int) -> None:
        self.address, self._netns = address, netns

    async def run(self, work: Callable[[], T]) -> T:
        return await inside(self._netns, work)


@pytest.fixture
async def two(pods: BridgedPods) -> AsyncGenerator[tuple[Pod, Pod]]:
    made: list[Pod] = []
    handles: list[int] = []
    for name in ("pod-1", "pod-2"):
        address = await pods.create(name)
        netns = await pods.namespace(name)
        assert netns is not None
        handles.append(netns)
        made.append(Pod(address, netns))
    yield made[0], made[1]
    for handle in handles:
        os.close(handle)


async def ground(instance: str, pods: BridgedPods, dns_port: int = 0) -> Ground:
    network = await pods.network()
    table, bridge = plans.services_table_name(instance), plans.bridge_name(instance)
    return Ground(table, bridge, network, SERVICES, dns_port)


def port(*targets: str, protocol: str = "tcp", node_port: int = 0, address: IPv4Address = VIP) -> ServedPort:
    places = tuple(Target(IPv4Address(text), 8080) for text in targets)
    return ServedPort((address,), protocol, 80, node_port, sticky=False, targets=places)


async def talk(server: Pod, client: Callable[[], socket.socket], listener: socket.socket) -> str:
    """Connect and exchange a few bytes, both ways; whom the server saw."""
    caller = await asyncio.to_thread(client)
    connection, peer = await asyncio.to_thread(listener.accept)
    with connection, caller:
        connection.sendall(b"hello")
        assert caller.recv(16) == b"hello"
        caller.sendall(b"bye")
        assert connection.recv(16) == b"bye"
    return str(peer[0])


def connect(address: str, number: int = 80) -> socket.socket:
    return socket.create_connection((address, number), timeout=5)


def listen(address: str) -> socket.socket:
    opened = socket.create_server((address, 8080))
    opened.settimeout(10)
    return opened


def in_pod(pod: Pod, address: str, number: int = 80) -> Callable[[], socket.socket]:
    return lambda: asyncio.run(pod.run(lambda: connect(address, number)))


async def test_a_cluster_ip_leads_to_the_pod(
    outside: int,
    instance: str,
    pods: BridgedPods,
    two: tuple[Pod, Pod],
) -> None:
    one, other = two
    run_nft(ruleset(await ground(instance, pods), [port(one.address, node_port=NODE_PORT)]))
    host = str((await pods.network())[1])
    with await one.run(lambda: listen(one.address)) as listener:
        assert await talk(one, lambda: connect(str(VIP)), listener) == host
        assert await talk(one, in_pod(other, str(VIP)), listener) == other.address, "the sender is kept"
        assert await talk(one, in_pod(one, str(VIP)), listener) == host, "a pod that reaches itself sees the host"
        assert await talk(one, lambda: connect("127.0.0.1", NODE_PORT), listener) == host
        assert await talk(one, lambda: connect("192.168.78.1", NODE_PORT), listener) == "192.168.78.1"
        assert await talk(one, in_pod(other, host, NODE_PORT), listener) == other.address
        away = await inside(outside, lambda: connect("192.168.78.1", NODE_PORT))
        assert await talk(one, lambda: away, listener) == "192.168.78.2", "a client on the LAN is seen as it is"


async def test_several_pods_share_the_connections(instance: str, pods: BridgedPods, two: tuple[Pod, Pod]) -> None:
    one, other = two
    run_nft(ruleset(await ground(instance, pods), [port(one.address, other.address)]))
    with await one.run(lambda: listen(one.address)) as first, await other.run(lambda: listen(other.address)) as second:
        for _ in range(40):
            connect(str(VIP)).close()
        counts = [accepted(each) for each in (first, second)]
    assert sum(counts) == 40
    assert min(counts) > 4


def accepted(listener: socket.socket) -> int:
    listener.setblocking(False)
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


async def test_udp(instance: str, pods: BridgedPods, two: tuple[Pod, Pod]) -> None:
    one, other = two
    run_nft(ruleset(await ground(instance, pods), [port(one.address, protocol="udp")]))
    server = await one.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    client = await other.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with server, client:
        server.bind((one.address, 8080))
        for each in (server, client):
            each.settimeout(5)
        client.sendto(b"ping", (str(VIP), 80))
        data, peer = await asyncio.to_thread(server.recvfrom, 100)
        assert (data, peer[0]) == (b"ping", other.address)
        server.sendto(b"pong", peer)
        assert await asyncio.to_thread(client.recvfrom, 100) == (b"pong", (str(VIP), 80))


async def test_without_pods_it_is_refused_at_once(instance: str, pods: BridgedPods, two: tuple[Pod, Pod]) -> None:
    nobody = port(address=EMPTY, node_port=NODE_PORT)
    run_nft(ruleset(await ground(instance, pods), [nobody, port(two[1].address)]))
    for address, number in ((str(EMPTY), 80), (str(VIP), 81), ("127.0.0.1", NODE_PORT)):
        with pytest.raises(ConnectionRefusedError):
            connect(address, number)
    with pytest.raises(ConnectionRefusedError):
        await two[0].run(lambda: connect(str(EMPTY)))


async def test_rules_are_replaced_whole_and_connections_stay(
    instance: str, pods: BridgedPods, two: tuple[Pod, Pod]
) -> None:
    one, other = two
    place = await ground(instance, pods)
    run_nft(ruleset(place, [port(one.address)]))
    first, second = await one.run(lambda: listen(one.address)), await other.run(lambda: listen(other.address))
    with first, second, connect(str(VIP)) as before:
        kept = first.accept()[0]
        run_nft(ruleset(place, [port(other.address)]))
        with connect(str(VIP)), second.accept()[0], kept:
            kept.sendall(b"still here")
            assert before.recv(32) == b"still here"


async def test_pods_do_not_reach_the_hosts_loopback(pods: BridgedPods, two: tuple[Pod, Pod]) -> None:
    host = (await pods.network())[1]

    def knock() -> str:
        subprocess.run(["ip", "route", "replace", "127.0.0.2/32", "via", str(host)], check=True, timeout=10)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
            caller.settimeout(1)
            try:
                caller.connect(("127.0.0.2", number))
            except OSError as error:
                return type(error).__name__
        return "connected"

    with socket.create_server(("127.0.0.2", 0)) as listener:
        number = listener.getsockname()[1]
        assert await two[0].run(knock) != "connected"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A host whose resolver is a stub on its loopback; it answers every query in capitals."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.bind(("127.0.0.77", 53))
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 127.0.0.77\n")
    monkeypatch.setattr(name_server, "_upstream", lambda: resolver.first(conf))
    process = subprocess.Popen(
        ["python3", "-c", _ANSWER], stdin=opened.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield
    process.kill()
    process.wait()
    opened.close()


_ANSWER = """
import socket
s = socket.socket(fileno=0)
while True:
    data, peer = s.recvfrom(4096)
    s.sendto(data[:2] + data[2:].upper(), peer)
"""


async def test_names_of_services_and_of_a_host_with_a_stub_resolver(
    stub: None, instance: str, pods: BridgedPods, two: tuple[Pod, Pod]
) -> None:
    del stub
    network = await pods.network()
    server = NameServer.open(OneService(), str(network[1]))
    run_nft(ruleset(await ground(instance, pods, server.port), []))
    try:
        ours = await ask(two[0], network[1], "web.lab.svc.cluster.local")
        assert ours[-4 - 11 : -11] == VIP.packed or VIP.packed in ours
        theirs = await ask(two[0], network[1], "example.org")
        assert b"\x07EXAMPLE\x03ORG" in theirs
    finally:
        server.close()


class OneService:
    """A table with one Service."""

    def service(self, namespace: str, name: str) -> dict[str, object] | None:
        return {"spec": {"clusterIP": str(VIP)}} if (namespace, name) == ("lab", "web") else None

    def slices(self, namespace: str, name: str) -> list[dict[str, object]]:
        del namespace, name
        return []

    def services(self) -> list[dict[str, object]]:
        return []


async def ask(pod: Pod, server: IPv4Address, name: str) -> bytes:
    query = bytes.fromhex("abcd01000001000000000000") + encode_name(tuple(name.split("."))) + b"\0\1\0\1"
    opened = await pod.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
    with opened:
        opened.sendto(query, (str(server), 53))
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(opened, 4096), 5)


async def test_nothing_is_left_of_them(instance: str, rundir: Path) -> None:
    before = everything()
    pods = BridgedPods(instance, rundir / instance / "podnetwork.json", SERVICES)
    address = await pods.create("pod-1")
    run_nft(ruleset(await ground(instance, pods), [port(address)]))
    assert plans.services_table_name(instance) in everything()
    await pods.clean_up()
    assert everything() == before

"""The embedded container network, on the real kernel; needs root."""

import asyncio
import os
import secrets
import socket
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from anyvisor.agent.network.namespace import inside
from anyvisor.embedded import podnetwork
from anyvisor.embedded.podnetwork import BridgedPods
from anyvisor.embedded.podnetwork import pods as pods_module
from anyvisor.embedded.podnetwork.plans import bridge_name, name_prefix, pod_name, table_name
from tests.machine.conftest import OUTSIDE_ADDRESS, everything


@pytest.fixture
def instance() -> str:
    if problem := podnetwork.problem():
        pytest.skip(problem)
    return secrets.token_hex(4)


@pytest.fixture
async def pods(instance: str, rundir: Path) -> AsyncGenerator[BridgedPods]:
    networks = BridgedPods(instance, rundir / instance / "podnetwork.json")
    yield networks
    await networks.clean_up()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=20)


async def namespace(pods: BridgedPods, pod: str) -> int:
    descriptor = await pods.namespace(pod)
    assert descriptor is not None
    return descriptor


def listen(address: str) -> socket.socket:
    return socket.create_server((address, 8080))


def exchange(listener: socket.socket, client: socket.socket) -> tuple[bytes, str]:
    """What a client hears, and from where the server saw it come."""
    connection, peer = listener.accept()
    with connection, client:
        connection.sendall(b"hello")
        return client.recv(16), peer[0]


async def test_pods_reach_each_other_and_the_outside(pods: BridgedPods, outside: int) -> None:
    first, second = await pods.create("pod-1"), await pods.create("pod-2")
    assert first != second
    one, two = await namespace(pods, "pod-1"), await namespace(pods, "pod-2")
    with await inside(two, lambda: listen(second)) as listener:
        client = await inside(one, lambda: socket.create_connection((second, 8080), timeout=10))
        assert await asyncio.to_thread(exchange, listener, client) == (b"hello", first)
    with await inside(outside, lambda: listen(OUTSIDE_ADDRESS)) as listener:
        client = await inside(one, lambda: socket.create_connection((OUTSIDE_ADDRESS, 8080), timeout=10))
        heard, seen = await asyncio.to_thread(exchange, listener, client)
        assert (heard, seen) == (b"hello", "192.168.78.1"), "the outside sees the host's address"
    os.close(one)
    os.close(two)


async def test_nothing_is_left_behind(instance: str, rundir: Path) -> None:
    before = everything()
    pods = BridgedPods(instance, rundir / instance / "podnetwork.json")
    await pods.create("pod-1")
    await pods.create("pod-2")
    assert bridge_name(instance) in everything()
    await pods.destroy("pod-1")
    assert pod_name(instance, "pod-1") not in everything()
    await pods.clean_up()
    assert everything() == before
    await pods.clean_up()
    assert await pods.namespace("pod-1") is None


async def test_found_again_it_is_the_same(pods: BridgedPods, instance: str, rundir: Path) -> None:
    address = await pods.create("pod-1")
    inode = os.stat(f"/run/netns/{pod_name(instance, 'pod-1')}").st_ino
    successor = BridgedPods(instance, rundir / instance / "podnetwork.json")
    assert await successor.create("pod-1") == address
    assert os.stat(f"/run/netns/{pod_name(instance, 'pod-1')}").st_ino == inode
    assert await successor.create("pod-2") != address


async def test_half_made_pod_is_made_anew(pods: BridgedPods, instance: str) -> None:
    await pods.create("pod-0")
    ip("netns", "add", pod_name(instance, "pod-1"))
    address = await pods.create("pod-1")
    descriptor = await namespace(pods, "pod-1")
    with await inside(descriptor, lambda: listen(address)):
        pass
    os.close(descriptor)


async def test_leftovers_of_a_lost_runtime_directory_are_removed(
    pods: BridgedPods, instance: str, rundir: Path
) -> None:
    await pods.create("pod-1")
    (rundir / instance / "podnetwork.json").unlink()
    ip("link", "delete", bridge_name(instance))
    await pods.create("pod-2")
    assert pod_name(instance, "pod-1") not in everything()


async def test_a_spare_namespace_becomes_the_next_pods(pods: BridgedPods, instance: str) -> None:
    await pods.warm()
    [spare] = [name for name in os.listdir("/run/netns") if name.startswith(name_prefix(instance))]
    inode = os.stat(f"/run/netns/{spare}").st_ino
    address = await pods.create("pod-1")
    descriptor = await namespace(pods, "pod-1")
    assert os.fstat(descriptor).st_ino == inode
    with await inside(descriptor, lambda: listen(address)):
        pass
    os.close(descriptor)
    await pods.destroy("pod-1")
    assert spare not in os.listdir("/run/netns")


async def test_a_new_spare_is_made_after_a_while(
    pods: BridgedPods, instance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pods_module, "REFILL_SECONDS", 0.01)
    await pods.create("pod-1")
    async with asyncio.timeout(10):
        while len([name for name in os.listdir("/run/netns") if name.startswith(name_prefix(instance))]) < 2:
            await asyncio.sleep(0.01)
    assert await pods.create("pod-2") != await pods.create("pod-1")


async def test_namespaces_that_no_book_knows_are_swept(pods: BridgedPods, instance: str) -> None:
    await pods.create("pod-1")
    ip("netns", "add", pod_name(instance, "a crash left it"))
    await pods.warm()
    assert pod_name(instance, "a crash left it") not in everything()
    assert pod_name(instance, "pod-1") in everything()


async def test_destroying_what_never_was_is_nothing(pods: BridgedPods) -> None:
    await pods.destroy("pod-9")
    assert await pods.namespace("pod-9") is None


async def test_two_instances_do_not_meet(pods: BridgedPods, rundir: Path) -> None:
    other = BridgedPods(secrets.token_hex(4), rundir / "other" / "podnetwork.json")
    try:
        mine, theirs = await pods.create("pod-1"), await other.create("pod-1")
        assert mine != theirs
        await other.clean_up()
        descriptor = await namespace(pods, "pod-1")
        with await inside(descriptor, lambda: listen(mine)):
            pass
        os.close(descriptor)
    finally:
        await other.clean_up()


async def test_many_at_once(pods: BridgedPods) -> None:
    addresses = await asyncio.gather(*(pods.create(f"pod-{number}") for number in range(8)))
    assert len(set(addresses)) == 8


def test_names_fit_into_the_kernels_fifteen_bytes() -> None:
    assert len(pod_name("0123456789abcdef", "uid")) <= 15
    assert len(bridge_name("0123456789abcdef")) <= 15
    assert table_name("01234567").isidentifier()

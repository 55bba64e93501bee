"""fd.sock: descriptors beside the calls."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anyvisor.hri.errors import InvalidRequest, LimitReached
from anyvisor.hri.kit.descriptors import DescriptorStore
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.stream_pb2 import STREAM_KIND_CONSOLE, OpenStreamRequest
from anyvisor.hri.v1.types_pb2 import DescriptorToken

Start = Callable[..., Awaitable[Any]]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_token_may_come_before_or_after_its_call():
    store = DescriptorStore()
    read, write = os.pipe()
    store.put(b"1" * 16, read)
    waiting = asyncio.create_task(
        store.collect([DescriptorToken(handle="a", token=b"1" * 16), DescriptorToken(handle="b", token=b"2" * 16)])
    )
    await asyncio.sleep(0)
    store.put(b"2" * 16, write)
    got = await waiting
    assert (got.take("a"), got.take("b")) == (read, write)
    os.close(read)
    os.close(write)


async def test_a_token_is_used_once_and_dropped_in_time():
    before = open_descriptors()
    store = DescriptorStore(life=0.05)
    store.put(b"1" * 16, os.open("/dev/null", os.O_RDONLY))
    (await store.collect([DescriptorToken(handle="a", token=b"1" * 16)])).close()
    with pytest.raises(InvalidRequest, match="did not arrive"):
        await store.collect([DescriptorToken(handle="a", token=b"1" * 16)])
    assert open_descriptors() == before


async def test_a_token_that_no_call_names_is_dropped_in_time():
    store = DescriptorStore(life=0.05)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    store.put(b"2" * 16, theirs.detach())
    assert await asyncio.get_running_loop().sock_recv(ours, 1) == b""
    assert len(store) == 0
    ours.close()


@pytest.mark.parametrize(
    ("tokens", "match"),
    [
        ([("a", b"short")], "has 5 bytes"),
        ([("a", b"1" * 16), ("a", b"2" * 16)], "two descriptor tokens"),
    ],
)
async def test_tokens_have_a_form_and_a_refusal_closes_all(tokens: list[tuple[str, bytes]], match: str):
    before = open_descriptors()
    store = DescriptorStore()
    for number in (b"1", b"2"):
        store.put(number * 16, os.open("/dev/null", os.O_RDONLY))
    with pytest.raises(InvalidRequest, match=match):
        await store.collect([DescriptorToken(handle=handle, token=token) for handle, token in tokens])
    store.close()
    assert open_descriptors() == before


async def test_tokens_are_bounded():
    store = DescriptorStore()
    with pytest.raises(LimitReached):
        await store.collect([DescriptorToken(handle=str(n), token=b"1" * 16) for n in range(65)])
    before = open_descriptors()
    for number in range(300):
        store.put(number.to_bytes(16, "big"), os.open("/dev/null", os.O_RDONLY))
    assert len(store) == 256
    store.close()
    assert open_descriptors() == before


@pytest.mark.parametrize("message", [b"", b"short", b"x" * 17, b"x" * 100])
async def test_a_message_of_another_form_ends_the_connection_alone(serve: Start, message: bytes):
    served = await serve()
    before = open_descriptors()
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bad:
        bad.setblocking(False)
        await loop.sock_connect(bad, str(served.fd))
        read, write = os.pipe()
        socket.send_fds(bad, [message], [read])
        assert await loop.sock_recv(bad, 1) == b""
        os.close(read)
        os.close(write)
    assert open_descriptors() <= before + 1  # the connection of the good client below is not made yet
    read, write = os.pipe()
    await served.client.send_descriptor("x", read)
    os.close(read)
    os.close(write)


async def test_several_descriptors_in_one_message_are_refused_and_closed(serve: Start):
    served = await serve()
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bad:
        bad.setblocking(False)
        await loop.sock_connect(bad, str(served.fd))
        pairs = [os.pipe() for _ in range(8)]
        socket.send_fds(bad, [b"1" * 16], [read for read, _ in pairs])
        assert await loop.sock_recv(bad, 1) == b""
        for read, write in pairs:
            os.close(read)
            with pytest.raises(BrokenPipeError):  # every other copy of the reading end is closed, too
                os.write(write, b"x")
            os.close(write)


async def test_a_call_closes_what_the_driver_did_not_take(serve: Start):
    served = await serve()
    await served.client.prepare(Machine(id="m"), [], generation=1)
    read, write = os.pipe()
    token = await served.client.send_descriptor("unused", read)
    os.close(read)
    await served.client.start("m", generation=1, tokens=[token])
    with pytest.raises(BrokenPipeError):
        os.write(write, b"x")
    os.close(write)


async def test_a_call_without_the_descriptor_that_it_needs(serve: Start):
    served = await serve()
    await served.client.prepare(Machine(id="m"), [], generation=1)
    await served.client.start("m", generation=1)
    with pytest.raises(InvalidRequest, match=r"fd\.sock"):
        await served.client.open_stream(OpenStreamRequest(machine_id="m", kind=STREAM_KIND_CONSOLE))


async def test_the_sender_connects_again_after_a_restart(serve: Start):
    first = await serve(name="one")
    read, write = os.pipe()
    await first.client.send_descriptor("a", read)
    first.client._sender._connection.shutdown(socket.SHUT_RDWR)
    await first.client.send_descriptor("a", read)
    os.close(read)
    os.close(write)

"""The console: drained always, bounded always."""

import asyncio
import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anyvisor.agent import serial
from anyvisor.agent.serial import SHARED_CLIENTS, Console, SerialLog


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, guest = socket.socketpair()
    guest.settimeout(10)
    yield ours, guest
    ours.close()
    guest.close()


async def until(console_client: serial.ConsoleClient, marker: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(10):
        while marker not in seen:
            seen += await console_client.read()
    return seen


async def test_a_late_client_gets_what_came_before(pair: tuple[socket.socket, socket.socket]):
    ours, guest = pair
    console = Console()
    console.attach(ours, lambda: None)
    guest.sendall(b"early ")
    first = console.open()
    await until(first, b"early")
    guest.sendall(b"later")
    assert await until(console.open(), b"later") == b"early later"
    console.close("done")


async def test_the_newest_client_wins_and_both_are_told(pair: tuple[socket.socket, socket.socket]):
    ours, _guest = pair
    console = Console()
    console.attach(ours, lambda: None)
    first = console.open()
    second = console.open()
    assert await first.read() == b""
    assert first.closed == "another client opened this console"
    first.close()
    console.close("the machine ended")
    assert await second.read() == b""
    assert second.closed == "the machine ended"


async def test_input_reaches_the_guest(pair: tuple[socket.socket, socket.socket]):
    ours, guest = pair
    console = Console()
    console.attach(ours, lambda: None)
    await console.open().write(b"ls\n")
    assert guest.recv(10) == b"ls\n"
    console.detach()
    await console.open().write(b"lost")
    console.close("done")


async def test_a_flood_neither_blocks_the_guest_nor_grows_memory(pair: tuple[socket.socket, socket.socket]):
    ours, guest = pair
    noted: list[int] = []
    console = Console(noted.append)
    console.attach(ours, lambda: None)
    slow, follower = console.open(), console.follow()
    total = 32 * 1024 * 1024
    await asyncio.to_thread(lambda: [guest.sendall(b"x" * 65536) for _ in range(total // 65536)])
    guest.sendall(b"END")
    seen = await until(slow, b"END")
    assert sum(noted) == total + 3
    assert len(seen) <= serial.CLIENT_BYTES + serial.CHUNK_BYTES + 200
    assert seen.startswith(b"\r\n[output was lost here")
    assert len(await until(console.open(), b"END")) <= serial.REPLAY_BYTES
    follower.close()
    console.close("done")


async def test_the_end_of_the_vmm_is_told_and_the_client_stays_for_the_next(
    pair: tuple[socket.socket, socket.socket],
):
    ours, guest = pair
    console = Console()
    ended = asyncio.Event()
    console.attach(ours, ended.set)
    client = console.open()
    guest.sendall(b"last words")
    guest.close()
    async with asyncio.timeout(10):
        await ended.wait()
    assert not console.connected
    assert await client.read() == b"last words"
    again, other = socket.socketpair()
    console.attach(again, lambda: None)
    other.sendall(b"hello")
    assert await client.read() == b"hello"
    console.close("done")
    other.close()


def opened(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def test_the_log_is_moved_away_before_it_fills_its_place(tmp_path: Path):
    kept: list[bytes] = []
    directory = opened(tmp_path)
    log = SerialLog.create(directory, "serial", (os.geteuid(), os.getegid()), kept.append)
    vmm = log.for_vmm()
    for number in range(40):
        block = b"%02d" % number + b"x" * (64 * 1024 - 2)
        os.write(vmm, block)
        log.noted(len(block))
    assert (tmp_path / "serial").stat().st_size <= serial.LOG_BYTES
    assert kept
    text = b"".join(kept) + log.read()
    assert text[-64 * 1024 :].startswith(b"39")
    os.write(vmm, b"goes on")
    assert log.read().endswith(b"goes on")
    for descriptor in (vmm, directory):
        os.close(descriptor)
    log.close()


def test_the_vmm_can_only_append(tmp_path: Path):
    directory = opened(tmp_path)
    log = SerialLog.create(directory, "serial", (os.geteuid(), os.getegid()), lambda _: None)
    vmm = log.for_vmm()
    os.write(vmm, b"first")
    os.lseek(vmm, 0, os.SEEK_SET)
    os.write(vmm, b"second")
    assert log.read() == b"firstsecond"
    with pytest.raises(OSError):
        os.read(vmm, 1)
    for descriptor in (vmm, directory):
        os.close(descriptor)
    log.close()


def link(trap: Path, secret: Path) -> None:
    trap.symlink_to(secret)


def fifo(trap: Path, _secret: Path) -> None:
    os.mkfifo(trap)


def folder(trap: Path, _secret: Path) -> None:
    trap.mkdir()


@pytest.mark.parametrize("make", [link, fifo, folder])
def test_a_log_that_the_launcher_replaced_is_not_followed(tmp_path: Path, make: Callable[[Path, Path], None]):
    (tmp_path / "dir").mkdir()
    (tmp_path / "secret").write_text("root's")
    make(tmp_path / "dir" / "serial", tmp_path / "secret")
    directory = opened(tmp_path / "dir")
    with pytest.raises(OSError):
        SerialLog.adopt(directory, "serial", lambda _: None)
    os.close(directory)


async def test_a_shared_console_is_read_by_all_and_written_by_the_first(pair: tuple[socket.socket, socket.socket]):
    ours, guest = pair
    console = Console()
    console.attach(ours, lambda: None)
    first, second, third = (client for client in (console.share(), console.share(), console.share()) if client)
    guest.send(b"to all")
    for client in (first, second, third):
        assert await until(client, b"to all") == b"to all"
    await second.write(b"not heard")
    await first.write(b"one")
    assert guest.recv(100) == b"one"
    first.close()
    await second.write(b"two")
    assert guest.recv(100) == b"two"
    taking_over = console.open()
    assert second.closed == "another client opened this console"
    assert not third.closed, "who only reads is not sent away"
    assert await until(taking_over, b"to all") == b"to all"
    console.detach()


async def test_the_clients_of_a_shared_console_are_bounded(pair: tuple[socket.socket, socket.socket]):
    console = Console()
    console.attach(pair[0], lambda: None)
    shared = [client for _ in range(SHARED_CLIENTS + 1) if (client := console.share()) is not None]
    assert len(shared) == console.clients == SHARED_CLIENTS + 1
    assert console.share() is None
    shared.pop().close()
    again = console.share()
    assert again is not None
    console.close("the machine ended")
    assert {client.closed for client in (*shared, again)} == {"the machine ended"}


async def test_output_that_comes_byte_by_byte_takes_no_more_memory(pair: tuple[socket.socket, socket.socket]):
    ours, guest = pair
    console, seen = Console(), 0

    def count(data: bytes) -> None:
        nonlocal seen
        seen += len(data)

    console.attach(ours, lambda: None, count)
    tracemalloc.start()
    try:
        for number in range(1, 4001):
            guest.sendall(b"x")
            while seen < number:
                await asyncio.sleep(0)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 64 * 1024, f"4000 bytes of output take {kept} bytes"
    console.close("done")

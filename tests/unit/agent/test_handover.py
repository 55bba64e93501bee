"""The hand-over against a launcher that lies, dies, or is slow."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from anyvisor.agent.handover import HandOverError, await_shim, connect_beneath, hand_over, was_taken
from anyvisor.agent.launchers import Launcher
from anyvisor.launcher import shim


@pytest.fixture
async def launcher(rundir: Path) -> AsyncIterator[Launcher]:
    """A real shim that waits."""
    command = [sys.executable, "-I", "-S", shim.__file__, "run", str(rundir)]
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    found = Launcher(
        process.pid,
        os.pidfd_open(process.pid),
        os.open(rundir, os.O_RDONLY | os.O_DIRECTORY),
        os.geteuid(),
        os.getegid(),
    )
    yield found
    found.close()
    if process.returncode is None:
        process.kill()
    await process.wait()


async def test_a_plan_becomes_a_program(launcher: Launcher, rundir: Path):
    (await await_shim(launcher)).close()
    assert not await was_taken(launcher)
    await hand_over(await await_shim(launcher), shim.Plan(["/usr/bin/touch", str(rundir / "mark")], [], []), [])
    async with asyncio.timeout(10):
        while not (rundir / "mark").exists():
            await asyncio.sleep(0.01)
    assert await was_taken(launcher)


async def test_a_program_that_is_not_there(launcher: Launcher):
    connection = await await_shim(launcher)
    with pytest.raises(HandOverError, match="No such file") as failed:
        await hand_over(connection, shim.Plan(["/no/such/vmm"], [], []), [])
    assert failed.value.taken


async def test_a_plan_that_is_refused_before_it_is_sent(launcher: Launcher):
    connection = await await_shim(launcher)
    with pytest.raises(HandOverError, match="absolute") as failed:
        await hand_over(connection, shim.Plan(["vmm"], [], []), [])
    assert not failed.value.taken


async def test_a_launcher_that_ends_before_it_is_ready(rundir: Path):
    process = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    launcher = Launcher(process.pid, os.pidfd_open(process.pid), os.open(rundir, os.O_RDONLY), 0, 0)
    try:
        process.kill()
        await process.wait()
        with pytest.raises(HandOverError, match="ended before"):
            await await_shim(launcher, 5)
    finally:
        launcher.close()


async def test_a_launcher_that_never_offers_its_socket(rundir: Path):
    process = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    launcher = Launcher(process.pid, os.pidfd_open(process.pid), os.open(rundir, os.O_RDONLY), 0, 0)
    try:
        with pytest.raises(HandOverError, match="did not offer"):
            await await_shim(launcher, 0.2)
    finally:
        launcher.close()
        process.kill()
        await process.wait()


async def test_a_socket_of_somebody_else_is_not_the_launchers(rundir: Path):
    """Whoever can write in the directory can bind there; the kernel says who it was."""
    process = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    launcher = Launcher(
        process.pid, os.pidfd_open(process.pid), os.open(rundir, os.O_RDONLY), os.geteuid(), os.getegid()
    )
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as impostor:
            impostor.bind(str(rundir / shim.SOCKET_NAME))
            impostor.listen(1)
            with pytest.raises(HandOverError, match=f"process {os.getpid()} of user"):
                await await_shim(launcher, 5)
    finally:
        launcher.close()
        process.kill()
        await process.wait()


def as_link(trap: Path, target: Path) -> None:
    trap.symlink_to(target)


def as_file(trap: Path, _target: Path) -> None:
    trap.write_text("no socket")


def as_fifo(trap: Path, _target: Path) -> None:
    os.mkfifo(trap)


def as_directory(trap: Path, _target: Path) -> None:
    trap.mkdir()


@pytest.mark.parametrize("make", [as_link, as_file, as_fifo, as_directory])
async def test_no_trap_in_the_directory_leads_anywhere(rundir: Path, make: Callable[[Path, Path], None]):
    (rundir / "victim").mkdir()
    (rundir / "launcher").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as victim:
        victim.bind(str(rundir / "victim" / "shim.sock"))
        victim.listen(1)
        make(rundir / "launcher" / "shim.sock", rundir / "victim" / "shim.sock")
        directory = os.open(rundir / "launcher", os.O_RDONLY)
        try:
            with pytest.raises(OSError):
                await connect_beneath(directory, "shim.sock", socket.SOCK_SEQPACKET)
        finally:
            os.close(directory)
        victim.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.accept()


@pytest.mark.parametrize("name", ["../victim/shim.sock", "sub/shim.sock"])
async def test_no_name_leads_out_of_the_directory(rundir: Path, name: str):
    (rundir / "victim").mkdir()
    (rundir / "launcher").mkdir()
    (rundir / "launcher" / "sub").symlink_to(rundir / "victim")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as victim:
        victim.bind(str(rundir / "victim" / "shim.sock"))
        victim.listen(1)
        directory = os.open(rundir / "launcher", os.O_RDONLY)
        try:
            with pytest.raises(OSError):
                await connect_beneath(directory, name, socket.SOCK_SEQPACKET)
        finally:
            os.close(directory)


async def test_a_full_queue_is_waited_for_no_longer_than_allowed(rundir: Path):
    directory = os.open(rundir, os.O_RDONLY)
    waiting: list[socket.socket] = []
    try:
        with socket.socket(socket.AF_UNIX) as busy:
            busy.bind(str(rundir / "busy.sock"))
            busy.listen(0)
            waiting.append(await connect_beneath(directory, "busy.sock", socket.SOCK_STREAM))
            with pytest.raises(TimeoutError):
                waiting.append(await connect_beneath(directory, "busy.sock", socket.SOCK_STREAM, 0.1))
    finally:
        os.close(directory)
        for connection in waiting:
            connection.close()

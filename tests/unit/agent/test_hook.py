"""The stop hook's socket: a hook hears that the guest is down, and leaves before the VMM is ended."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from anyvisor.agent import hook as hooks
from anyvisor.agent.hook import StopHook
from anyvisor.agent.launchers import Launcher
from anyvisor.launcher import beside, shim


@pytest.fixture
def launcher(rundir: Path) -> Iterator[Launcher]:
    made = Launcher(os.getpid(), os.pidfd_open(os.getpid()), os.open(rundir, os.O_RDONLY), os.getuid(), os.getgid())
    yield made
    made.close()


async def asking(rundir: Path) -> socket.socket:
    """A hook that has asked, and was told that the guest is being stopped."""
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setblocking(False)
    connection.connect(str(rundir / shim.AGENT_NAME))
    await loop.sock_sendall(connection, shim.STOP)
    assert await loop.sock_recv(connection, 64) == shim.STOPPING
    return connection


async def test_a_hook_is_told_and_waited_for(rundir: Path, launcher: Launcher) -> None:
    asked: list[bool] = []
    hook = StopHook(launcher, lambda: asked.append(True))
    with await asking(rundir) as connection:
        assert asked == [True]
        dismissed = asyncio.ensure_future(hook.dismiss(expected=True))
        assert await asyncio.get_running_loop().sock_recv(connection, 64) == shim.DOWN
        assert not dismissed.done()
    await dismissed
    hook.close()


async def test_a_hook_that_is_about_to_come_is_waited_for(rundir: Path, launcher: Launcher) -> None:
    hook = StopHook(launcher, lambda: None)
    dismissed = asyncio.ensure_future(hook.dismiss(expected=True))
    with await asking(rundir) as connection:
        assert await asyncio.get_running_loop().sock_recv(connection, 64) == shim.DOWN
    await dismissed
    hook.close()


async def test_nobody_is_waited_for_without_reason(launcher: Launcher) -> None:
    hook = StopHook(launcher, lambda: None)
    began = time.monotonic()
    await hook.dismiss(expected=False)
    assert time.monotonic() - began < 1.0
    hook.close()


async def test_a_hook_that_does_not_leave_holds_nothing_up(
    rundir: Path, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "LEAVE_SECONDS", 0.05)
    hook = StopHook(launcher, lambda: None)
    with await asking(rundir):
        await hook.dismiss(expected=True)
    hook.close()


async def test_a_probe_is_answered_beside_a_hook(rundir: Path, launcher: Launcher) -> None:
    async def probe(words: Sequence[str]) -> str:
        return "" if list(words) == ["--guestAgentPing"] else f"cannot {words[0]}"

    hook = StopHook(launcher, lambda: None, probe)
    with await asking(rundir):
        assert await probed(rundir, "--guestAgentPing") == beside.GOOD
        assert await probed(rundir, "fly") == beside.BAD + b"\0cannot fly"
    hook.close()


async def test_a_probe_that_hangs_takes_no_hooks_place(rundir: Path, launcher: Launcher) -> None:
    async def probe(_words: Sequence[str]) -> str:
        await asyncio.Event().wait()
        return ""

    hook = StopHook(launcher, lambda: None, probe)
    waiting = [asyncio.ensure_future(probed(rundir, "hang")) for _ in range(hooks.MAX_PROBES)]
    while len(hook.probes) < hooks.MAX_PROBES:
        await asyncio.sleep(0)
    assert await probed(rundir, "one too many") == b""
    with await asking(rundir):
        hook.close()
    assert await asyncio.gather(*waiting) == [b""] * hooks.MAX_PROBES


async def probed(rundir: Path, *words: str) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.setblocking(False)
        connection.connect(str(rundir / shim.AGENT_NAME))
        await loop.sock_sendall(connection, beside.encode_probe(list(words)))
        return await loop.sock_recv(connection, beside.PROBE_LIMIT)

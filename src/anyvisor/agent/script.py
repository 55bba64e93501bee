"""The stop script, played without blocking the loop: how a guest is stopped when its driver is away."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence

from anyvisor.agent import linux
from anyvisor.agent.handover import connect_beneath
from anyvisor.launcher import shim

_CHUNK = 16384
_CONNECT_SECONDS = 2.0


def read(directory: int) -> shim.StopPlan | None:
    """The script in a launcher's directory, which is hostile: no link is followed, the endpoint stays inside."""
    try:
        source = linux.openat2(directory, shim.STOP_NAME, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(shim.PlanError, OSError), open(source, "rb") as file:
        return shim.decode_stop(file.read(shim.STOP_LIMIT))
    return None


async def request(directory: int, seconds: float) -> bool:
    """Ask the guest to shut down; True when it is down, or the VMM gone, within `seconds`."""
    script = read(directory)
    if script is None:
        return False
    return await _play(directory, script.endpoint, script.request, seconds, until_closed=False)


async def finish(directory: int, seconds: float) -> bool:
    """End the VMM, flushed; True when it closed its end within `seconds`."""
    script = read(directory)
    if script is None:
        return False
    return await _play(directory, script.endpoint, script.finish, seconds, until_closed=True)


async def _play(
    directory: int, endpoint: str, steps: Sequence[shim.Step], seconds: float, *, until_closed: bool
) -> bool:
    try:
        connection = await connect_beneath(directory, endpoint, socket.SOCK_STREAM, _CONNECT_SECONDS)
    except OSError:
        return False
    with connection:
        try:
            async with asyncio.timeout(seconds):
                closed = await _steps(connection, steps)
                while until_closed and not closed:
                    closed = not await asyncio.get_running_loop().sock_recv(connection, _CHUNK)
        except TimeoutError:
            return False
        except OSError:
            return True
    return True


async def _steps(connection: socket.socket, steps: Sequence[shim.Step]) -> bool:
    """Play the steps; True when the VMM closed the connection. The last one's request is repeated."""
    loop = asyncio.get_running_loop()
    pending = b""
    for index, step in enumerate(steps):
        repeat = shim.REPEAT_SECONDS if index == len(steps) - 1 else None
        await loop.sock_sendall(connection, step.send)
        while step.expect not in pending:
            try:
                async with asyncio.timeout(repeat):
                    chunk = await loop.sock_recv(connection, _CHUNK)
            except TimeoutError:
                await loop.sock_sendall(connection, step.send)
                continue
            if not chunk:
                return True
            pending = (pending + chunk)[-shim.STOP_LIMIT :]
        pending = pending.partition(step.expect)[2] if step.expect else pending
    return False


async def ask_agent(directory: int, seconds: float) -> bool:
    """What the stop hook does first: ask the agent; True when it said that the guest is down."""
    try:
        connection = await connect_beneath(directory, shim.AGENT_NAME, socket.SOCK_SEQPACKET, _CONNECT_SECONDS)
    except OSError:
        return False
    loop = asyncio.get_running_loop()
    with connection:
        try:
            await loop.sock_sendall(connection, shim.STOP)
            async with asyncio.timeout(min(shim.ANSWER_SECONDS, seconds)):
                if await loop.sock_recv(connection, 64) != shim.STOPPING:
                    return False
            async with asyncio.timeout(seconds):
                return await loop.sock_recv(connection, 64) == shim.DOWN
        except OSError:
            return False

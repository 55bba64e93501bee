"""Hand a launch plan to the shim of a launcher: what lies in the launcher's directory is hostile until proven."""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Sequence
from typing import Final

from anyvisor.agent import linux
from anyvisor.agent.launchers import Launcher, LauncherError
from anyvisor.agent.processes import has_ended
from anyvisor.launcher import shim

SOCKET_SECONDS: Final = 10.0
"""How long a launcher may take until its socket is bound: an image's first start compiles Python files."""
ANSWER_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 0.02
_UCRED: Final = struct.Struct("3i")


class HandOverError(LauncherError):
    """The plan did not become a VMM. `taken` tells whether the launcher is used up."""

    def __init__(self, message: str, *, taken: bool) -> None:
        super().__init__(message)
        self.taken = taken


async def connect_beneath(
    directory: int, name: str, kind: socket.SocketKind, seconds: float = ANSWER_SECONDS
) -> socket.socket:
    """Connect to the socket `name` below `directory`, following no link, within a deadline.

    Raises:
        OSError: no such socket (ENOENT, ELOOP, ENOTSOCK), nobody listens (ECONNREFUSED), or its queue stays full
            (TimeoutError).
    """
    inode = linux.openat2(directory, name)
    try:
        if not stat.S_ISSOCK(os.fstat(inode).st_mode):
            raise OSError(f"{name} in the launcher's directory is no socket")
        return await _connect(f"/proc/self/fd/{inode}", kind, seconds)
    finally:
        os.close(inode)


async def _connect(path: str, kind: socket.SocketKind, seconds: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    connection.connect(path)
                    return connection
                except BlockingIOError:
                    # A full queue of a unix socket: the kernel offers no event for its end.
                    await asyncio.sleep(_RETRY_SECONDS)
    except BaseException:
        connection.close()
        raise


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The pid and uid at the other end, as they were when it began to listen or connected."""
    pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


async def await_shim(launcher: Launcher, seconds: float = SOCKET_SECONDS) -> socket.socket:
    """Connect to the shim as soon as it listens, and prove that it is this launcher's process.

    Raises:
        HandOverError: it ended, it took a plan before, or somebody else listens there.
    """
    watch = linux.Watch.open(launcher.directory)
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    connection = await connect_beneath(launcher.directory, shim.SOCKET_NAME, socket.SOCK_SEQPACKET)
                    break
                except FileNotFoundError:
                    await _changed_or_ended(watch, launcher)
                except ConnectionRefusedError:
                    # Between bind and listen, or a socket whose owner is gone.
                    _refuse_ended(launcher)
                    await asyncio.sleep(_RETRY_SECONDS)
    except TimeoutError as error:
        raise HandOverError(f"the launcher did not offer its socket within {seconds:.0f} s", taken=False) from error
    except OSError as error:
        raise HandOverError(f"the launcher's socket cannot be used: {error}", taken=False) from error
    finally:
        watch.close()
    return _proven(connection, launcher)


def _proven(connection: socket.socket, launcher: Launcher) -> socket.socket:
    pid, uid = peer_of(connection)
    if pid != launcher.pid or uid != launcher.uid or has_ended(launcher.pidfd):
        connection.close()
        raise HandOverError(
            f"process {pid} of user {uid} answers at the launcher's socket, "
            f"not process {launcher.pid} of user {launcher.uid}",
            taken=False,
        )
    return connection


async def _changed_or_ended(watch: linux.Watch, launcher: Launcher) -> None:
    _refuse_ended(launcher)
    changed = asyncio.ensure_future(watch.changed())
    ended = asyncio.ensure_future(linux.readable(launcher.pidfd))
    try:
        await asyncio.wait((changed, ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in (changed, ended):
            waiting.cancel()
        await asyncio.gather(changed, ended, return_exceptions=True)
    _refuse_ended(launcher)


def _refuse_ended(launcher: Launcher) -> None:
    if has_ended(launcher.pidfd):
        raise HandOverError("the launcher ended before it took a plan", taken=False)


async def was_taken(launcher: Launcher) -> bool:
    """Whether the launcher has become a VMM, asked after a crash of ours; only for one that was ready before.

    Raises:
        HandOverError: it can be told by nothing.
    """
    loop = asyncio.get_running_loop()
    try:
        connection = await connect_beneath(launcher.directory, shim.SOCKET_NAME, socket.SOCK_SEQPACKET)
    except (FileNotFoundError, ConnectionRefusedError):
        return True
    except OSError as error:
        raise HandOverError(f"the launcher's socket cannot be used: {error}", taken=True) from error
    with connection:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await loop.sock_sendall(connection, shim.PING)
                return await loop.sock_recv(connection, 64) != shim.WAITING
        except OSError:
            return True


async def hand_over(connection: socket.socket, plan: shim.Plan, descriptors: Sequence[int]) -> None:
    """Send the plan and wait until the launcher has become the VMM; closes the connection.

    Raises:
        HandOverError: the plan was refused, the program could not be executed, or no answer came.
    """
    loop = asyncio.get_running_loop()
    with connection:
        try:
            message = shim.encode_plan(plan)
        except shim.PlanError as error:
            raise HandOverError(f"the launch plan cannot be handed over: {error}", taken=False) from error
        try:
            socket.send_fds(connection, [message], descriptors)
        except OSError as error:
            raise HandOverError(f"the launcher did not take its plan: {error}", taken=False) from error
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                first = await loop.sock_recv(connection, 4096)
                _expect_taken(first)
                last = await loop.sock_recv(connection, 4096)
        except TimeoutError as error:
            raise HandOverError("the launcher did not answer to its plan", taken=True) from error
        except OSError as error:
            raise HandOverError(f"the launcher went away during the hand-over: {error}", taken=True) from error
    if last:
        raise HandOverError(_sentence(last), taken=True)


def _expect_taken(answer: bytes) -> None:
    if answer == shim.TAKEN:
        return
    if answer.startswith((shim.REFUSED, shim.FAILED)):
        raise HandOverError(_sentence(answer), taken=True)
    raise HandOverError("the launcher took another plan, or ended without taking one", taken=True)


def _sentence(answer: bytes) -> str:
    """The launcher's own words, bounded: its image may be anybody's."""
    return "the launcher says: " + answer.partition(b"\0")[2].decode(errors="replace")[:300]

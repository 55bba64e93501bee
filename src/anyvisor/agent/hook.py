"""The socket in the launcher's directory where the pod's other processes ask the agent: the stop hook, and probes."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

from anyvisor.agent.launchers import Launcher
from anyvisor.launcher import beside, shim

MAX_HOOKS = 4
MAX_PROBES = 4
EXPECTED_SECONDS = 8.0
"""How long a hook may take from its pod's deletion until it asks: a container's exec, and Python's start."""
LEAVE_SECONDS = 5.0
"""How long a hook may take to end when it was told: its connection ends with its process, not before."""


Probe = Callable[[Sequence[str]], Awaitable[str]]
"""Carries out what the words of a probe ask; a sentence for what is wrong, empty for nothing."""


async def no_probe(_words: Sequence[str]) -> str:
    """Nothing can be asked of this guest."""
    return "this machine has no channel to an agent in the guest"


class StopHook:
    """Answers `stop` at once, and `down` when the guest is; and probes. Who connects is the launcher's user or root."""

    def __init__(self, launcher: Launcher, requested: Callable[[], None], probe: Probe = no_probe) -> None:
        self._requested = requested
        self._probe = probe
        self.probes: set[asyncio.Task[None]] = set()
        """Those that are being carried out."""
        self._waiting: list[socket.socket] = []
        self._asked: list[socket.socket] = []
        self._changed = asyncio.Event()
        self._listener = _listen(launcher)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._waiting) >= MAX_HOOKS:
            connection.close()
            return
        connection.setblocking(False)
        self._waiting.append(connection)
        self._loop.add_reader(connection, self._receive, connection)

    def _receive(self, connection: socket.socket) -> None:
        words: list[str] | None = None
        try:
            message = connection.recv(beside.PROBE_LIMIT)
            words = beside.decode_probe(message)
            asked = message == shim.STOP
            if asked:
                connection.send(shim.STOPPING)
        except BlockingIOError:
            return
        except OSError:
            asked = False
        if words is not None and len(self.probes) < MAX_PROBES:
            self._loop.remove_reader(connection)
            self._waiting.remove(connection)
            task = self._loop.create_task(self._answer(connection, words), name="probe")
            self.probes.add(task)
            task.add_done_callback(self.probes.discard)
        elif asked:
            self._asked.append(connection)
            self._changed.set()
            self._requested()
        else:
            self._drop(connection)

    async def _answer(self, connection: socket.socket, words: Sequence[str]) -> None:
        """A probe that was given up, for its own time limit, is carried out to its end all the same."""
        with connection:
            wrong = await self._probe(words)
            answer = beside.BAD + b"\0" + wrong.encode()[: beside.PROBE_LIMIT // 2] if wrong else beside.GOOD
            with contextlib.suppress(OSError):
                connection.send(answer)

    def _drop(self, connection: socket.socket) -> None:
        self._loop.remove_reader(connection)
        self._waiting.remove(connection)
        if connection in self._asked:
            self._asked.remove(connection)
        self._changed.set()
        connection.close()

    async def dismiss(self, *, expected: bool) -> None:
        """Tell all hooks that the guest is down and let them end, as the VMM's end would kill them in its pod.

        `expected`: a hook that has not asked yet is about to, as its pod was told to end.
        """
        if expected:
            await self._until(lambda: bool(self._asked), EXPECTED_SECONDS)
        for connection in list(self._waiting):
            with contextlib.suppress(OSError):
                connection.send(shim.DOWN)
        await self._until(lambda: not self._asked, LEAVE_SECONDS)
        for connection in list(self._waiting):
            self._drop(connection)

    async def _until(self, done: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not done():
                    self._changed.clear()
                    await self._changed.wait()

    def close(self) -> None:
        """Stop listening; hooks that still wait go on without us."""
        for task in self.probes:
            task.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._waiting):
            self._drop(connection)


def _listen(launcher: Launcher) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    before = os.umask(0o077)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(shim.AGENT_NAME, dir_fd=launcher.directory)
        listener.bind(f"/proc/self/fd/{launcher.directory}/{shim.AGENT_NAME}")
        if os.geteuid() == 0:
            os.chown(
                shim.AGENT_NAME,
                launcher.uid,
                launcher.gid,
                dir_fd=launcher.directory,
                follow_symlinks=False,
            )
        listener.listen(MAX_HOOKS)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener

"""A launch plan executed without an agent: sockets bound, descriptors placed, the VMM started, its console read."""

import asyncio
import contextlib
import fcntl
import os
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from anyvisor.hri.conformance.session import CheckSkippedError, expect, fail
from anyvisor.hri.v1.machine_pb2 import LaunchPlan, PrepareResponse
from anyvisor.hri.v1.types_pb2 import Endpoint

FREE_NUMBERS: Final = 300
"""Descriptors are parked from here on, above all that a plan may name."""
CONNECT_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.02
KEPT_BYTES: Final = 1 << 20
_KINDS: Final = {
    Endpoint.SOCKET_UNSPECIFIED: socket.SOCK_STREAM,
    Endpoint.SOCKET_STREAM: socket.SOCK_STREAM,
    Endpoint.SOCKET_DGRAM: socket.SOCK_DGRAM,
    Endpoint.SOCKET_SEQPACKET: socket.SOCK_SEQPACKET,
}
_BECOME: Final = """
import os, sys
if sys.argv[2]:
    with open(sys.argv[2], "w") as procs:
        procs.write(str(os.getpid()))
os.chdir(sys.argv[1])
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The launcher: into the control group and the private directory, then the VMM. The environment is the plan's."""


class Launcher:
    """One machine's directory, descriptors and process; an async context manager that leaves nothing."""

    def __init__(self, answer: PrepareResponse, handles: Mapping[str, int], procs: str = "") -> None:
        self._answer = answer
        self._procs = procs
        self.handles = dict(handles)
        self._endpoints = {endpoint.id: endpoint for endpoint in answer.endpoints}
        self.directory = Path(tempfile.mkdtemp(prefix="av-", dir="/tmp"))
        self._ours: dict[str, int] = {}
        self._pairs: dict[str, socket.socket] = {}
        self._bound = 0
        self.pid = 0
        self._pidfd = -1
        self._ended: asyncio.Future[int] | None = None
        self.output = b""
        """The newest of what came over the console, bounded."""
        self.said = 0
        """How many bytes came in all."""
        self._console: socket.socket | None = None
        self._heard = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.hang_up()
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            await self.ended(CONNECT_SECONDS)
        for fd in self._ours.values():
            os.close(fd)
        for end in self._pairs.values():
            end.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Execute the plan, as the agent and the launcher would."""
        launch = self._answer.launch
        if launch.mode != LaunchPlan.MODE_EXEC:
            raise CheckSkippedError(f"launch mode {LaunchPlan.Mode.Name(launch.mode)} is not started by this program")
        if launch.helpers:
            raise CheckSkippedError("the plan has helpers, which this program does not start")
        for endpoint in self._answer.endpoints:
            self._make(endpoint)
        placed: list[tuple[int, int]] = []
        for slot in launch.descriptors:
            source = self._ours.get(slot.handle, self.handles.get(slot.handle, -1))
            expect(source >= 0, f"the plan wants {slot.handle!r} at {slot.number}, which nobody has")
            placed.append((fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, FREE_NUMBERS), slot.number))
        with (self.directory / "stderr").open("wb") as errors, open(os.devnull, "rb") as nothing:
            actions = [
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, errors.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, errors.fileno(), 2),
                *((os.POSIX_SPAWN_DUP2, parked, number) for parked, number in placed),
            ]
            command = [sys.executable, "-I", "-S", "-c", _BECOME, str(self.directory), self._procs, *launch.argv]
            environment = dict(variable.split("=", 1) for variable in launch.env)
            self.pid = os.posix_spawn(sys.executable, command, environment, file_actions=actions, setsid=True)
        for fd in (*(parked for parked, _ in placed), *self._ours.values()):
            os.close(fd)
        self._ours.clear()  # a socket of ours would keep the VMM's end open when it is gone
        for limit in launch.limits:
            number = getattr(resource, f"RLIMIT_{limit.name.upper()}", None)
            expect(number is not None, f"the plan sets the unknown limit {limit.name!r}")
            resource.prlimit(self.pid, number, (limit.soft, limit.hard))  # type: ignore[arg-type]
        self._pidfd = os.pidfd_open(self.pid)
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        _, status = os.waitpid(self.pid, 0)
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(os.waitstatus_to_exitcode(status))

    def _make(self, endpoint: Endpoint) -> None:
        where = endpoint.WhichOneof("location")
        path = str(self.path(endpoint))
        if where == "pair_descriptor":
            ours, theirs = socket.socketpair(type=_KINDS[endpoint.socket])
            ours.setblocking(False)
            self._pairs[endpoint.id] = ours
            self._ours[endpoint.id] = theirs.detach()
        elif where == "listen_descriptor" and endpoint.socket == Endpoint.SOCKET_FIFO:
            os.mkfifo(path, 0o600)
            self._ours[endpoint.id] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        elif where == "listen_descriptor":
            kind = _KINDS[endpoint.socket]
            listener = socket.socket(socket.AF_UNIX, kind)
            listener.bind(path)
            if kind != socket.SOCK_DGRAM:
                listener.listen(8)
            self._ours[endpoint.id] = listener.detach()

    def path(self, endpoint: Endpoint) -> Path:
        """Where the endpoint is in the directory."""
        while endpoint.shared_with:
            endpoint = self._endpoints[endpoint.shared_with]
        return self.directory / (endpoint.vmm_path or endpoint.id.replace("/", "-") + ".sock")

    async def descriptor(self, handle: str) -> int:
        """What the driver wants with Start, by handle or endpoint; the caller closes it."""
        if handle in self.handles:
            return os.dup(self.handles[handle])
        endpoint = self._endpoints[handle]
        if endpoint.socket == Endpoint.SOCKET_FIFO:
            return os.open(self.path(endpoint), os.O_RDONLY | os.O_NONBLOCK)
        return (await self.connect(endpoint)).detach()

    async def connect(self, endpoint: Endpoint) -> socket.socket:
        """A connection to an endpoint, once the VMM has bound it."""
        pair = self._pairs.get(endpoint.id)
        if pair is not None:
            return pair.dup()
        kind = _KINDS[endpoint.socket]
        connection = socket.socket(socket.AF_UNIX, kind)
        connection.setblocking(False)
        if kind == socket.SOCK_DGRAM:
            self._bound += 1  # its own end: a datagram is answered only to an address
            connection.bind(str(self.directory / f"client{self._bound}.sock"))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                while True:
                    try:
                        connection.connect(str(self.path(endpoint)))
                        return connection
                    except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
                        # A path that a VMM is about to bind gives no event in every file system.
                        await asyncio.sleep(RETRY_SECONDS)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                fail(f"endpoint {endpoint.id!r} cannot be reached; the VMM said: {self.errors()}")
            raise

    async def listen(self) -> None:
        """Connect to the console and gather what it says."""
        consoles = [e for e in self._answer.endpoints if e.purpose == Endpoint.PURPOSE_CONSOLE]
        expect(consoles, "the machine has a console, and no endpoint of purpose CONSOLE is announced")
        self._console = await self.connect(consoles[0])
        asyncio.get_running_loop().add_reader(self._console, self._read)

    def _read(self) -> None:
        assert self._console is not None
        try:
            data = self._console.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.output = (self.output + data)[-KEPT_BYTES:]
        self.said += len(data)
        self._heard.set()
        if not data:
            self.hang_up()

    def hang_up(self) -> None:
        """Leave the console."""
        if self._console is not None:
            asyncio.get_running_loop().remove_reader(self._console)
            self._console.close()
            self._console = None

    async def hears(self, more_than: int, seconds: float) -> bool:
        """Whether the console has said more than so many bytes, within the time."""
        try:
            async with asyncio.timeout(seconds):
                while self.said <= more_than:
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            return False
        return True

    async def reads(self, pattern: str, seconds: float, since: int = 0) -> re.Match[str] | None:
        """The first match in what the console said after a position, waited for; None when the time is over."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    heard = self.output[max(since - self.said + len(self.output), 0) :].decode(errors="replace")
                    found = re.search(pattern, heard, re.MULTILINE)
                    if found is not None:
                        return found
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            return None

    async def tell(self, line: str) -> int:
        """Type a line on the console; the position in the output from which the answer comes."""
        assert self._console is not None
        since = self.said
        await asyncio.get_running_loop().sock_sendall(self._console, line.encode() + b"\n")
        return since

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._ended is not None and not self._ended.done()

    async def ended(self, seconds: float) -> bool:
        """Whether the process ends within the time."""
        assert self._ended is not None
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ended)
        except TimeoutError:
            return False
        return True

    def kill(self) -> None:
        """kill -9, as the kernel does when memory runs out."""
        os.killpg(self.pid, signal.SIGKILL)

    def tail(self) -> str:
        """The last of what the console said."""
        return self.output[-400:].decode(errors="replace")

    def errors(self) -> str:
        """The last of what the VMM wrote to its standard error."""
        text = (self.directory / "stderr").read_bytes()[-2048:].decode(errors="replace")
        return " ".join(text.split()) or "nothing"

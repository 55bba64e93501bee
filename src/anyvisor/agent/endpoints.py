"""The ways to a running VMM: listening sockets in the launcher's directory, and who holds which.

The agent binds them before the VMM exists and keeps none of them open: a listener that outlived its VMM would let
clients wait for ever. Most VMM sockets serve one client, so the table of holders is what keeps a second from hanging.
"""

import contextlib
import errno
import os
import re
import socket
import stat
from collections.abc import Iterable, Mapping
from typing import Final

from anyvisor.agent.handover import connect_beneath
from anyvisor.agent.launchers import Launcher
from anyvisor.agent.records import EndpointRecord
from anyvisor.hri.v1.types_pb2 import Endpoint

BACKLOG: Final = 4
_KINDS: Final[dict[int, socket.SocketKind]] = {
    Endpoint.SOCKET_STREAM: socket.SOCK_STREAM,
    Endpoint.SOCKET_UNSPECIFIED: socket.SOCK_STREAM,
    Endpoint.SOCKET_DGRAM: socket.SOCK_DGRAM,
    Endpoint.SOCKET_SEQPACKET: socket.SOCK_SEQPACKET,
}
_SOCKETS: Final = frozenset({*_KINDS, Endpoint.SOCKET_FIFO})
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,63})?")
_PATH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,80}){0,3}")
_CAP: Final = 128
_WAITING: Final = ".helper"


class EndpointError(Exception):
    """An endpoint is not usable as announced, or somebody holds it."""


def describe(endpoints: Iterable[Endpoint]) -> tuple[EndpointRecord, ...]:
    """What a record keeps of the driver's endpoints; raises EndpointError for one that cannot be."""
    found: dict[str, EndpointRecord] = {}
    for endpoint in endpoints:
        record = EndpointRecord(
            id=endpoint.id,
            name=_name(endpoint, found),
            purpose=endpoint.purpose,
            socket=endpoint.socket,
            exclusive=endpoint.exclusive,
            device_id=endpoint.device_id,
            protocol=endpoint.protocol,
            reader_logs=endpoint.reader_logs,
        )
        if endpoint.id in found or len(found) >= _CAP:
            raise EndpointError(f"the driver announced endpoint {endpoint.id!r} twice, or too many of them")
        found[endpoint.id] = record
    return tuple(found.values())


def _name(endpoint: Endpoint, earlier: Mapping[str, EndpointRecord]) -> str:
    if not _ID.fullmatch(endpoint.id) or endpoint.socket not in _SOCKETS:
        raise EndpointError(f"the driver announced an endpoint that cannot be: {endpoint.id[:80]!r}")
    if endpoint.WhichOneof("location") == "shared_with":
        if endpoint.shared_with not in earlier:
            raise EndpointError(f"endpoint {endpoint.id!r} shares the unknown endpoint {endpoint.shared_with[:80]!r}")
        return earlier[endpoint.shared_with].name
    if endpoint.WhichOneof("location") == "vmm_path":
        if not _PATH.fullmatch(endpoint.vmm_path):
            raise EndpointError(f"endpoint {endpoint.id!r} names the path {endpoint.vmm_path[:80]!r}")
        return endpoint.vmm_path
    return endpoint.id.replace("/", "-") + ".sock"


def bind(launcher: Launcher, record: EndpointRecord) -> int:
    """A listening socket in the launcher's directory, for the VMM to accept on; the caller's to close.

    Owned by the launcher's user, as the stop hook runs as that. Of a named pipe, both its ends.
    """
    if record.socket == Endpoint.SOCKET_FIFO:
        return _make_fifo(launcher, record)
    kind = _KINDS[record.socket]
    listener = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    before = os.umask(0o077)
    try:
        _unlink(launcher.directory, record.name)
        listener.bind(f"/proc/self/fd/{launcher.directory}/{record.name}")
        if os.geteuid() == 0:
            os.chown(record.name, launcher.uid, launcher.gid, dir_fd=launcher.directory, follow_symlinks=False)
        if kind != socket.SOCK_DGRAM:
            listener.listen(BACKLOG)
        return listener.detach()
    except OSError as error:
        raise EndpointError(f"endpoint {record.id!r} cannot be bound: {error.strerror}") from error
    finally:
        os.umask(before)
        listener.close()


def waiting_pair(directory: int) -> tuple[socket.socket, socket.socket]:
    """A connection, and the listening socket that it waits at; no name stays in `directory`. Raises EndpointError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    place = f"/proc/self/fd/{directory}/{_WAITING}"
    before = os.umask(0o077)
    try:
        _unlink(directory, _WAITING)
        listener.bind(place)
        listener.listen(1)
        connection.connect(place)
        _unlink(directory, _WAITING)
    except OSError as error:
        connection.close()
        listener.close()
        raise EndpointError(f"a way to a helper cannot be made: {error.strerror}") from error
    finally:
        os.umask(before)
    return connection, listener


def _make_fifo(launcher: Launcher, record: EndpointRecord) -> int:
    try:
        _unlink(launcher.directory, record.name)
        os.mkfifo(record.name, 0o600, dir_fd=launcher.directory)
        if os.geteuid() == 0:
            os.chown(record.name, launcher.uid, launcher.gid, dir_fd=launcher.directory, follow_symlinks=False)
        return _open_fifo(launcher.directory, record.name, os.O_RDWR)
    except OSError as error:
        raise EndpointError(f"endpoint {record.id!r} cannot be made: {error.strerror}") from error


def _open_fifo(directory: int, name: str, access: int) -> int:
    """The named pipe, and nothing else that stands there under its name."""
    flags = access | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(name, flags, dir_fd=directory)
    if stat.S_ISFIFO(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise OSError(errno.EINVAL, "it is no named pipe")


def _unlink(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


class Endpoints:
    """The endpoints of one machine and their holders."""

    def __init__(self, directory: int, records: Iterable[EndpointRecord]) -> None:
        self._directory = directory
        self._records = {record.id: record for record in records}
        self._holders: dict[str, str] = {}

    def get(self, endpoint_id: str) -> EndpointRecord | None:
        """The endpoint of that id."""
        return self._records.get(endpoint_id)

    def of_purpose(self, purpose: int) -> list[EndpointRecord]:
        """All endpoints of a purpose, in the driver's order."""
        return [record for record in self._records.values() if record.purpose == purpose]

    def holder(self, endpoint_id: str) -> str | None:
        """Who holds an exclusive endpoint."""
        return self._holders.get(endpoint_id)

    async def connect(self, endpoint_id: str, holder: str, seconds: float = 5.0) -> socket.socket:
        """Connect on behalf of `holder`, who must `release` an exclusive endpoint.

        Raises:
            EndpointError: unknown, held by another, or the VMM does not answer.
        """
        record = self._records.get(endpoint_id)
        if record is None:
            raise EndpointError(f"the machine has no endpoint {endpoint_id!r}")
        held = self._holders.get(endpoint_id)
        if record.exclusive and held is not None and held != holder:
            raise EndpointError(f"endpoint {endpoint_id!r} is held by {held}")
        kind = _KINDS[record.socket]
        if record.exclusive:
            self._holders[endpoint_id] = holder
        try:
            return await connect_beneath(self._directory, record.name, kind, seconds)
        except OSError as error:
            self._holders.pop(endpoint_id, None)
            raise EndpointError(f"endpoint {endpoint_id!r} does not answer: {error.strerror or error}") from error

    async def descriptor(self, endpoint_id: str, holder: str) -> int:
        """A descriptor to give away: a connection as `connect` makes it, or the reading end of a named pipe."""
        record = self._records.get(endpoint_id)
        if record is None or record.socket != Endpoint.SOCKET_FIFO:
            return (await self.connect(endpoint_id, holder)).detach()
        try:
            return _open_fifo(self._directory, record.name, os.O_RDONLY)
        except OSError as error:
            raise EndpointError(f"endpoint {endpoint_id!r} cannot be read: {error.strerror}") from error

    def release(self, endpoint_id: str) -> None:
        """Nobody holds the endpoint any more."""
        self._holders.pop(endpoint_id, None)

    def release_all(self, holder: str) -> None:
        """The holder is gone: its connections closed with it."""
        self._holders = {id_: who for id_, who in self._holders.items() if who != holder}

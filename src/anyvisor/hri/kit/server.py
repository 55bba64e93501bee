"""`serve`: a driver on its two unix sockets until the task is cancelled."""

import asyncio
import os
import socket
import stat
import weakref
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from grpclib.const import Cardinality, Status
from grpclib.const import Handler as MethodHandler
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol
from grpclib.server import Handler, Server, Stream

from anyvisor.hri.kit import descriptors
from anyvisor.hri.kit.core import Core, KitLimits
from anyvisor.hri.kit.driver import Driver
from anyvisor.hri.kit.services import IdentityService, MachineService, NodeService, StatsService, StreamService
from anyvisor.hri.peers import PeerPolicy
from anyvisor.hri.v1.types_pb2 import StatusDetails
from anyvisor.hri.wire import WINDOW, DetailsCodec, LimitedProtocol

__all__ = ["DriverServer", "KitLimits", "serve"]

Address = str | os.PathLike[str] | socket.socket


async def _no_such_method(_stream: Stream[StatusDetails, StatusDetails]) -> None:
    raise GRPCError(Status.UNIMPLEMENTED, "the driver does not serve this method; it may be of a later HRI minor")


_NO_SUCH_METHOD: Final = MethodHandler(_no_such_method, Cardinality.UNARY_UNARY, StatusDetails, StatusDetails)


class _Methods(dict[str, MethodHandler]):
    """The served methods; any other answers UNIMPLEMENTED in full (grpclib's own answer lacks its content type)."""

    def get(self, key: str, default: MethodHandler | None = None) -> MethodHandler:  # type: ignore[override]
        return super().get(key, default) or _NO_SUCH_METHOD


class _Server(Server):
    """grpclib's server with capped streams and checked peers."""

    def __init__(self, services: list[object], peers: PeerPolicy) -> None:
        super().__init__(services, codec=ProtoCodec(), status_details_codec=DetailsCodec(), config=WINDOW)  # type: ignore[arg-type]
        self._mapping = _Methods(self._mapping)
        self._peers = peers
        self._protocols = weakref.WeakSet[LimitedProtocol]()

    def _protocol_factory(self) -> H2Protocol:
        self.__gc_step__()
        handler = Handler(self._mapping, self._codec, self._status_details_codec, self.__dispatch__)
        self._handlers.add(handler)
        protocol = LimitedProtocol(handler, self._config, self._h2_config, self._peers)
        self._protocols.add(protocol)
        return protocol

    async def stop(self) -> None:
        """End calls and connections; grpclib's own close leaves the connections open."""
        self.close()
        await self.wait_closed()
        for protocol in self._protocols:
            protocol.drop()


class DriverServer:
    """A driver that serves; an async context manager. `core` is open to tests and to in-process callers."""

    def __init__(
        self,
        driver: Driver,
        hri_socket: Address,
        fd_socket: Address,
        *,
        limits: KitLimits | None = None,
        peers: PeerPolicy | None = None,
        core: Core | None = None,
    ) -> None:
        self.core = core or Core(driver, limits)
        self._hri = hri_socket
        self._fd = fd_socket
        self._peers = peers or PeerPolicy()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            core = await stack.enter_async_context(self.core)
            listener = bind(self._fd, socket.SOCK_SEQPACKET)
            stack.callback(unlink, self._fd)
            fd_server = descriptors.DescriptorServer(listener, core.descriptors, self._peers)
            stack.callback(fd_server.close)
            services = (IdentityService, NodeService, MachineService, StreamService, StatsService)
            server = _Server([service(core) for service in services], self._peers)
            listener = bind(self._hri, socket.SOCK_STREAM)
            stack.callback(unlink, self._hri)
            await server.start(sock=listener)
            stack.push_async_callback(server.stop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)


async def serve(
    driver: Driver,
    hri_socket: Address,
    fd_socket: Address,
    *,
    limits: KitLimits | None = None,
    peers: PeerPolicy | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve the driver until cancelled. `ready` is called once both sockets accept.

    A path is bound with mode 0600 in a directory that is the driver's own; a socket must be listening-capable and
    bound (a parent may pass it in). A stale socket at the path is replaced, anything else there is left alone.
    """
    async with DriverServer(driver, hri_socket, fd_socket, limits=limits, peers=peers):
        ready()
        await asyncio.get_running_loop().create_future()


def bind(address: Address, kind: socket.SocketKind) -> socket.socket:
    """A listening unix socket at the path, or the given one set to listen."""
    if isinstance(address, socket.socket):
        address.listen(64)
        address.setblocking(False)
        return address
    path = os.fspath(address)
    unlink(path)
    listener = socket.socket(socket.AF_UNIX, kind)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def unlink(address: Address) -> None:
    """Remove a socket file; nothing else."""
    if isinstance(address, socket.socket):
        return
    try:
        if stat.S_ISSOCK(os.lstat(address).st_mode):
            os.unlink(address)
    except FileNotFoundError:
        pass

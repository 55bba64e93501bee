"""The connection to the daemon: blocking calls in threads, events on the loop, and again after the daemon's restart.

The binding is synchronous C, and needs one thread of its own for events and keep-alives.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

import libvirt

from anyvisor.hri.errors import HriError, MachineNotFound, VmmFailed

log = logging.getLogger(__name__)

T = TypeVar("T")
_Register = Callable[[libvirt.virDomain | None, int, Callable[..., None], None], int]

THREADS: Final = 8
KEEP_ALIVE_SECONDS: Final = 5
KEEP_ALIVE_COUNT: Final = 4
FIRST_RETRY_SECONDS: Final = 0.2
LAST_RETRY_SECONDS: Final = 10.0
_pumping = threading.Lock()
_pump: threading.Thread | None = None


@dataclass(frozen=True, slots=True)
class DomainEvent:
    """Something that a domain did. `kind` is `lifecycle` or `io-error`; numbers are libvirt's."""

    kind: str
    event: int = 0
    detail: int = 0
    device: str = ""
    reason: str = ""


class Listener(Protocol):
    """Who follows one domain; called on the loop."""

    def on_event(self, event: DomainEvent) -> None:
        """The domain did something."""
        ...

    def on_reconnect(self) -> None:
        """The daemon is back; events were missed."""
        ...


def _ignore(_context: None, _error: object) -> None:
    """Every error comes as an exception as well."""


def _run_events() -> None:
    while True:
        with contextlib.suppress(libvirt.libvirtError):
            libvirt.virEventRunDefaultImpl()


def _start_events() -> None:
    """The thread of libvirt's events; one for the process, and before the first connection."""
    global _pump
    with _pumping:
        if _pump is None:
            libvirt.virEventRegisterDefaultImpl()
            # Until it is told otherwise, libvirt prints every error to stderr.
            libvirt.registerErrorHandler(_ignore, None)
            _pump = threading.Thread(target=_run_events, name="libvirt-events", daemon=True)
            _pump.start()


class Connection:
    """One daemon. Opened at the first call, and anew when it was lost."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="libvirt")
        self._open: libvirt.virConnect | None = None
        self._opening = asyncio.Lock()
        self._listeners: dict[str, Listener] = {}
        self._reconnecting: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.changed = asyncio.Event()
        """Set when the daemon came or went; who waits for it replaces it."""

    async def call(self, function: Callable[[libvirt.virConnect], T]) -> T:
        """Run `function` with the connection, in a thread.

        Raises:
            MachineNotFound: libvirt has no such domain. VmmFailed: everything else that it says no to.
        """
        connection = await self._opened()
        return await self.in_thread(lambda: function(connection))

    async def on_domain(self, name: str, function: Callable[[libvirt.virDomain], T]) -> T:
        """Run `function` with the domain of that name."""
        return await self.call(lambda connection: function(connection.lookupByName(name)))

    @property
    def lost(self) -> bool:
        """Whether the daemon is away at the moment."""
        return self._open is None

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Run a blocking call of libvirt's; raises what `call` does."""
        try:
            return await self._loop.run_in_executor(self._threads, function)
        except libvirt.libvirtError as error:
            raise failure(error) from error

    async def _opened(self) -> libvirt.virConnect:
        async with self._opening:
            if self._open is not None:
                return self._open
            _start_events()
            try:
                self._open = await self.in_thread(lambda: self._connect())
            except HriError as error:
                raise VmmFailed(
                    f"libvirt does not answer at {self.uri}: {error.message}; see that its daemon runs and that "
                    "the driver's user may talk to it",
                    retry="backoff",
                ) from error
            self._tell_change()
            return self._open

    def _connect(self) -> libvirt.virConnect:
        """Runs in a thread."""
        connection = libvirt.open(self.uri)
        with contextlib.suppress(libvirt.libvirtError):
            connection.setKeepAlive(KEEP_ALIVE_SECONDS, KEEP_ALIVE_COUNT)
        connection.registerCloseCallback(self._on_close, None)
        register = cast("_Register", connection.domainEventRegisterAny)  # its stub leaves the callback open
        register(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle, None)
        register(None, libvirt.VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON, self._on_io_error, None)
        return connection

    # Callbacks, on the thread of events

    def _on_lifecycle(self, _connection: Any, domain: libvirt.virDomain, event: int, detail: int, _: Any) -> None:
        self._pass_on(domain.name(), DomainEvent("lifecycle", event, detail))

    def _on_io_error(
        self, _connection: Any, domain: libvirt.virDomain, _path: str, device: str, action: int, reason: str, _: Any
    ) -> None:
        self._pass_on(domain.name(), DomainEvent("io-error", action, device=device, reason=reason))

    def _pass_on(self, name: str, event: DomainEvent) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._dispatch, name, event)

    def _on_close(self, connection: libvirt.virConnect, reason: int, _: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._lost, reason)

    # The same, on the loop

    def _dispatch(self, name: str, event: DomainEvent) -> None:
        listener = self._listeners.get(name)
        if listener is not None:
            listener.on_event(event)

    def _lost(self, reason: int) -> None:
        if self._open is None:
            return
        log.warning("the connection to libvirt at %s was lost (reason %d)", self.uri, reason)
        self._open = None
        self._tell_change()
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        wait = FIRST_RETRY_SECONDS
        while self._open is None:
            await asyncio.sleep(wait)
            wait = min(wait * 2, LAST_RETRY_SECONDS)
            with contextlib.suppress(HriError):
                await self._opened()
        for listener in list(self._listeners.values()):
            listener.on_reconnect()

    def _tell_change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def follow(self, name: str, listener: Listener) -> None:
        """Tell `listener` what the domain of that name does, from now on."""
        self._listeners[name] = listener

    def leave(self, name: str, listener: Listener) -> None:
        """Tell it no more."""
        if self._listeners.get(name) is listener:
            del self._listeners[name]

    async def close(self) -> None:
        """Let go of the daemon; domains go on."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.wait([self._reconnecting])
        connection, self._open = self._open, None
        if connection is not None:
            with contextlib.suppress(HriError):
                await self.in_thread(lambda: _close(connection))
        self._threads.shutdown(wait=False, cancel_futures=True)


def _close(connection: libvirt.virConnect) -> None:
    connection.unregisterCloseCallback()
    connection.close()


def failure(error: libvirt.libvirtError) -> HriError:
    """What an error of libvirt's means to the caller."""
    said = str(error.get_error_message() or error)[:500]
    if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
        return MachineNotFound(f"libvirt has no such domain: {said}")
    return VmmFailed(said)

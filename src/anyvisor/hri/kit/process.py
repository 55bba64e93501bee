"""A driver's process: an event loop that serves until SIGTERM or SIGINT. Guests are not touched by its end."""

import asyncio
import contextlib
import signal

import uvloop

from anyvisor.hri.kit.driver import Driver
from anyvisor.hri.kit.server import serve


def run(driver: Driver, hri_socket: str, fd_socket: str) -> None:
    """Serve the driver on two unix sockets until a signal."""
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(_serve(driver, hri_socket, fd_socket))


async def _serve(driver: Driver, hri_socket: str, fd_socket: str) -> None:
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    await serve(driver, hri_socket, fd_socket)

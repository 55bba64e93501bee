"""The driver's process: an event loop that serves until SIGTERM or SIGINT."""

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Final

import uvloop

from anyvisor.drivers.cloud_hypervisor.service import CloudHypervisorDriver
from anyvisor.hri.kit import serve

FACTS_FILE: Final = "facts.json"


def run(hri_socket: str, fd_socket: str, binary: str = "") -> None:
    """Serve on the two sockets. The facts of the node are kept beside the HRI socket."""
    with contextlib.suppress(asyncio.CancelledError):
        uvloop.run(_serve(hri_socket, fd_socket, binary))


async def _serve(hri_socket: str, fd_socket: str, binary: str) -> None:
    loop = asyncio.get_running_loop()
    driver = CloudHypervisorDriver(binary, cache=Path(hri_socket).parent / FACTS_FILE)
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    await serve(driver, hri_socket, fd_socket)

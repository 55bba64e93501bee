"""What every component's process does: logs, a client from its service account, an orderly end on SIGTERM."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from anyvisor.kube.client import Client
from anyvisor.kube.config import load
from anyvisor.kube.http import HttpTransport

_FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"


@asynccontextmanager
async def client(kubeconfig: Path | None, component: str) -> AsyncGenerator[Client]:
    """A client as the pod's own service account, or as a kubeconfig says; its fields are managed by `component`."""
    transport = HttpTransport(load(kubeconfig))
    try:
        yield Client(transport, component)
    finally:
        await transport.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Work until SIGTERM or SIGINT."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_FORMAT)
    uvloop.run(_until_told(work))


async def _until_told(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await work
    except asyncio.CancelledError:
        logging.getLogger(__name__).info("ended, as told")

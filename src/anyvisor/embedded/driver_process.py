"""A driver of one node: an unprivileged process that serves the HRI on two sockets, which the zygote holds."""

import asyncio
import logging
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import uvloop

from anyvisor.embedded import confine, system
from anyvisor.embedded.instance import Instance
from anyvisor.hri.kit.driver import Driver
from anyvisor.hri.kit.server import serve
from anyvisor.hri.kit.sockets import listen as bind
from anyvisor.hri.packages import DriverPackage

LOG_FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"


@dataclass(frozen=True, slots=True)
class DriverSockets:
    """Listening sockets: gRPC, and the one for descriptors. They outlive the driver's process."""

    hri: socket.socket
    fd: socket.socket


def directory(instance: Instance, node: str, driver: str) -> Path:
    """Where the driver's sockets are."""
    return instance.node_run_dir(node) / "drivers" / driver


def listen(instance: Instance, node: str, driver: str) -> DriverSockets:
    """Bind both sockets; only root and our own user may connect (the driver's kit checks the peer, too)."""
    place = directory(instance, node, driver)
    place.mkdir(mode=0o711, parents=True, exist_ok=True)
    return DriverSockets(bind(place / "hri.sock", socket.SOCK_STREAM), bind(place / "fd.sock", socket.SOCK_SEQPACKET))


def run(instance: Instance, node: str, package: DriverPackage, sockets: DriverSockets) -> None:
    """Serve until SIGTERM."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    user = system.uid_of(package.user) if package.user and os.geteuid() == 0 else instance.users.driver
    state = instance.node_dir(node) / "drivers" / package.name
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chown(state, user, user)
    confine.become(user, [state], [*system.device_groups(), *system.group_ids(package.groups)])
    uvloop.run(_serve(package.driver(state), sockets))


async def _serve(driver: Driver, sockets: DriverSockets) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await serve(driver, sockets.hri, sockets.fd)
    except asyncio.CancelledError:
        return

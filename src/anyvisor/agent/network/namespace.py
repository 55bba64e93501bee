"""Work inside a pod's network namespace, in a thread that ends with the work.

A thread of a pool must never be left in another namespace, so each piece of work gets a thread of its own. A child
process that the work starts is in the namespace, too.
"""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from anyvisor.agent import linux
from anyvisor.agent.network.dhcp import SERVER_PORT

T = TypeVar("T")

_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR, _IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x4000, 0x0100
_SIOCGIFMTU: Final = 0x8921
_IFREQ: Final = struct.Struct("16sH22x")
DNS_PORT: Final = 53
_FORWARDING: Final = "sys/net/ipv4/ip_forward"
COMMAND_SECONDS: Final = 20.0
_libc = ctypes.CDLL(None, use_errno=True)


class CommandError(Exception):
    """`ip` or `nft` refused; the message is its own, with what it was told."""


async def inside(netns: int, work: Callable[[], T], undo: Callable[[T], None] = lambda _: None) -> T:
    """Run `work` in the namespace of the descriptor, in a thread of its own.

    A thread cannot be called back: when the caller is cancelled meanwhile, `undo` gets what the work brought.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    own = os.dup(netns)

    def run() -> None:
        try:
            _enter(own)
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            _tell(loop, partial(_fail, done, error))
        else:
            _tell(loop, partial(_succeed, done, result))
        finally:
            os.close(own)

    threading.Thread(target=run, name="netns", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        done.add_done_callback(partial(_discard, undo))
        raise


def _discard(undo: Callable[[T], None], done: asyncio.Future[T]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(callback)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _enter(netns: int) -> None:
    if _libc.setns(netns, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the pod's network namespace cannot be entered: {os.strerror(number)}")


IP_BATCH: Final = ("ip", "-batch", "-")
"""Reads commands of `ip`; the first failing one ends it."""
NFT: Final = ("nft", "-f", "-")
"""Reads a ruleset; all of it is loaded, or nothing."""


def run_ip(batch: str) -> None:
    """Run commands of `ip`."""
    run_tools((IP_BATCH, batch))


def run_nft(ruleset: str) -> None:
    """Load a ruleset."""
    run_tools((NFT, ruleset))


def run_tools(*jobs: tuple[Sequence[str], str]) -> list[str]:
    """Run tools with their input, all at the same time; their outputs. Raises CommandError for the first that fails."""
    environment = {"PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin", "LC_ALL": "C"}
    running: list[subprocess.Popen[str]] = []
    try:
        for command, _ in jobs:
            running.append(
                subprocess.Popen(
                    command,
                    text=True,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
        outputs = [process.communicate(text, COMMAND_SECONDS) for process, (_, text) in zip(running, jobs, strict=True)]
    except FileNotFoundError as error:
        raise CommandError(f"{error.filename} is not installed (Debian: apt-get install iproute2 nftables)") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{error.cmd[0]} did not end within {COMMAND_SECONDS:g} s") from error
    finally:
        for process in running:
            process.kill()
            with process:  # closes the pipes and waits
                pass
    for process, (command, _), (_, errors) in zip(running, jobs, outputs, strict=True):
        if process.returncode:
            raise CommandError(f"{command[0]}: {errors.strip()[:1000]}")
    return [output for output, _ in outputs]


def set_forwarding() -> None:
    """Let the namespace pass packets on (/proc/sys/net shows the namespace of the thread that opens it)."""
    try:
        Path("/proc", _FORWARDING).write_text("1")
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        # In a container, /proc/sys is read-only.
        proc = linux.detached_proc()
        try:
            setting = os.open(_FORWARDING, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
            try:
                os.write(setting, b"1")
            finally:
                os.close(setting)
        finally:
            os.close(proc)


def open_tap(name: str, queues: int) -> list[int]:
    """A tap device of that name, one descriptor for each queue. It vanishes with the last of them."""
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR | (_IFF_MULTI_QUEUE if queues > 1 else 0)
    request = _IFREQ.pack(name.encode(), flags)
    descriptors: list[int] = []
    try:
        for _ in range(queues):
            descriptors.append(os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            fcntl.ioctl(descriptors[-1], _TUNSETIFF, request)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return descriptors


def exists(interface: str) -> bool:
    """Whether the namespace has the interface."""
    try:
        socket.if_nametoindex(interface)
    except OSError:
        return False
    return True


def mtu_of(interface: str) -> int:
    """The MTU of an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFMTU, struct.pack("16si12x", interface.encode(), 0))
    return struct.unpack("16si12x", answer)[1]


def dhcp_socket(interface: str) -> socket.socket:
    """A UDP socket on port 67 of one interface."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        opened.bind(("0.0.0.0", SERVER_PORT))
    except BaseException:
        opened.close()
        raise
    return opened


def dns_sockets(address: str) -> tuple[socket.socket, socket.socket]:
    """A UDP and a listening TCP socket on port 53 of an address."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        for each in (udp, tcp):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind((address, DNS_PORT))
        tcp.listen(16)
    except BaseException:
        udp.close()
        tcp.close()
        raise
    return udp, tcp

"""`anyvisor console VM`: the serial console in this terminal."""

import argparse
import contextlib
import os
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

from anyvisor.cli import streaming
from anyvisor.cli.api import instance, split_name
from anyvisor.cli.main import CommandError
from anyvisor.embedded.instance import Instance

if TYPE_CHECKING:
    import aiohttp

_ESCAPE = b"\x1d"  # Ctrl+]
_CHUNK = 10_240


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM and its namespace."""
    parser.add_argument("vm", metavar="VM", help="name of the VM (NAME or vm/NAME)")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("--shared", action="store_true", help="beside others: the first one types, all read")
    parser.add_argument("--seconds", type=float, metavar="S", help="leave by itself after S seconds")


def run(arguments: argparse.Namespace) -> int:
    """Attach; recent output comes first."""
    import asyncio

    name = split_name(arguments.vm)
    of = instance()
    path = streaming.vmi_path(arguments.namespace, name, "console") + ("?shared=true" if arguments.shared else "")
    print(f"connected to {name}; Ctrl+] leaves", file=sys.stderr)
    with _raw_terminal():
        asyncio.run(_attach(of, path, name, arguments.seconds))
    print(f"\nleft the console of {name}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _raw_terminal() -> Generator[None]:
    """Keys go to the guest as they are, where standard input is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setraw(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def _attach(of: Instance, path: str, name: str, seconds: float | None) -> None:
    import asyncio

    try:
        async with asyncio.timeout(seconds), streaming.connected(of, path) as stream:
            await _splice(stream)
    except TimeoutError:
        return
    except streaming.StreamRefusedError as refusal:
        raise CommandError(f"{name} has no console now: {refusal}; see `anyvisor why vm/{name}`") from refusal


async def _splice(stream: "aiohttp.ClientWebSocketResponse") -> None:
    """Until the guest's side ends, or the user leaves."""
    import asyncio

    loop = asyncio.get_running_loop()
    left = loop.create_future()
    keys: asyncio.Queue[bytes] = asyncio.Queue(64)

    def readable() -> None:
        data = os.read(0, _CHUNK)
        if not data or _ESCAPE in data:
            loop.remove_reader(0)
            if data and not left.done():
                left.set_result(None)
            return
        with contextlib.suppress(asyncio.QueueFull):
            keys.put_nowait(data)

    async def send() -> None:
        while True:
            await stream.send_bytes(await keys.get())

    async def receive() -> None:
        async for message in stream:
            sys.stdout.buffer.write(streaming.content(message))
            sys.stdout.buffer.flush()

    with contextlib.suppress(PermissionError):  # standard input is a file: nothing can be typed
        loop.add_reader(0, readable)
    tasks = [loop.create_task(send()), loop.create_task(receive())]
    try:
        await asyncio.wait([*tasks, left], return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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
from anyvisor.cli.naming import check_running
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
    parser.add_argument(
        "--until", default="", metavar="TEXT", help="leave when the guest has written TEXT; exit code 1 without it"
    )


def run(arguments: argparse.Namespace) -> int:
    """Attach; recent output comes first."""
    import asyncio

    name = split_name(arguments.vm)
    of = instance()
    path = streaming.vmi_path(arguments.namespace, name, "console") + ("?shared=true" if arguments.shared else "")
    check_running(of, arguments.namespace, name)
    print(f"connecting to {name}; Ctrl+] leaves", file=sys.stderr)
    with _raw_terminal():
        seen = asyncio.run(_attach(of, path, name, arguments.seconds, Awaited(arguments.until)))
    print(f"\nleft the console of {name}", file=sys.stderr)
    return 0 if seen else 1


class Awaited:
    """Looks for a text in what the guest writes after all that was typed has been sent; an empty one is not awaited."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()
        self._tail = b""
        self.typed = False
        self.seen = not self._text

    def feed(self, data: bytes) -> bool:
        """Whether it has come with this."""
        if self.seen or not self.typed:
            return False
        self._tail += data
        self.seen = self._text in self._tail
        self._tail = self._tail[-len(self._text) :]
        return self.seen


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


async def _attach(of: Instance, path: str, name: str, seconds: float | None, awaited: Awaited) -> bool:
    """Whether the awaited text has come."""
    import asyncio

    try:
        async with asyncio.timeout(seconds), streaming.connected(of, path) as stream:
            await _splice(stream, awaited)
    except TimeoutError:
        pass
    except streaming.StreamRefusedError as refusal:
        raise CommandError(f"{name} has no console now: {refusal}; see `anyvisor why vm/{name}`") from refusal
    return awaited.seen


async def _splice(stream: "aiohttp.ClientWebSocketResponse", awaited: Awaited) -> None:
    """Until the guest's side ends, the user leaves, or the awaited text has come."""
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
            with contextlib.suppress(asyncio.QueueFull):
                keys.put_nowait(b"")
            return
        with contextlib.suppress(asyncio.QueueFull):
            keys.put_nowait(data)

    async def send() -> None:
        while data := await keys.get():
            await stream.send_bytes(data)
        awaited.typed = True
        await asyncio.Event().wait()

    async def receive() -> None:
        async for message in stream:
            data = streaming.content(message)
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            if awaited.feed(data):
                return

    awaited.typed = sys.stdin.isatty()
    try:
        loop.add_reader(0, readable)
    except PermissionError:  # standard input is a file: nothing can be typed
        awaited.typed = True
    tasks = [loop.create_task(send()), loop.create_task(receive())]
    try:
        await asyncio.wait([*tasks, left], return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

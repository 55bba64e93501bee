"""`anyvisor vnc VM`: the display in a viewer, or on a local port; `anyvisor vnc screenshot VM`: a picture of it."""

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from anyvisor.cli import streaming
from anyvisor.cli.api import connect, split_name
from anyvisor.cli.main import CommandError
from anyvisor.cli.naming import named, running
from anyvisor.embedded.instance import Instance

if TYPE_CHECKING:
    import asyncio

_HOST = "127.0.0.1"
_VIEWERS = (
    ("remote-viewer", "vnc://{host}:{port}"),
    ("vncviewer", "{host}::{port}"),
    ("xtigervncviewer", "{host}::{port}"),
)
"""Programs that show a display, and how they take its address; the first that is installed is started."""


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM, and whether a picture, a viewer or a port is wanted."""
    parser.usage = f"{parser.prog} [options] VM\n       {parser.prog} screenshot [options] VM -f FILE"
    parser.add_argument("words", nargs="+", metavar="[screenshot] VM", help="name of the VM (NAME or vm/NAME)")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("-f", "--file", help="screenshot: the PNG file to write (- = standard output)")
    parser.add_argument("--move-cursor", action="store_true", help="screenshot: wake a display that sleeps")
    parser.add_argument("--proxy-only", action="store_true", help="start no viewer: listen and print the address")
    parser.add_argument("--port", type=int, default=0, help="local port to listen on (default: any free one)")
    parser.add_argument("--preserve-session", action="store_true", help="fail when somebody looks at it already")


def run(arguments: argparse.Namespace) -> int:
    """Take a picture, or serve the display until the viewer leaves."""
    words: list[str] = arguments.words
    if words[0] == "screenshot" and len(words) == 2:
        return _screenshot(arguments, split_name(words[1]))
    if len(words) != 1:
        raise CommandError("name one VM: `anyvisor vnc VM` or `anyvisor vnc screenshot VM -f FILE`")
    if not 0 <= arguments.port <= 65535:
        raise CommandError(f"{arguments.port} is no port: use 1 to 65535, or none for a free one")
    import asyncio

    name, api = split_name(words[0]), connect()
    running(api, arguments.namespace, name)
    proxy = _Proxy(api.instance, _path(arguments.namespace, name), keep=arguments.preserve_session)
    return asyncio.run(_show(proxy, arguments.port, viewer=not arguments.proxy_only))


def _path(namespace: str, name: str) -> str:
    return streaming.vmi_path(namespace, name, "vnc")


def _screenshot(arguments: argparse.Namespace, name: str) -> int:
    if not arguments.file:
        raise CommandError("say where the picture goes: -f FILE")
    query = {"moveCursor": "true"} if arguments.move_cursor else None
    api = connect()
    with named(api, arguments.namespace, name):
        picture = api.fetch(f"{_path(arguments.namespace, name)}/screenshot", query)
    if arguments.file == "-":
        sys.stdout.buffer.write(picture)
        return 0
    try:
        Path(arguments.file).write_bytes(picture)
    except OSError as error:
        raise CommandError(f"{arguments.file} cannot be written: {error.strerror}") from error
    print(f"wrote {arguments.file} ({len(picture)} bytes)")
    return 0


class _Proxy:
    """Carries each local connection over a websocket of its own."""

    def __init__(self, of: Instance, path: str, *, keep: bool) -> None:
        self._of = of
        self._path = path + ("?preserveSession=true" if keep else "")

    async def serve(self, reader: "asyncio.StreamReader", writer: "asyncio.StreamWriter") -> None:
        """One viewer, until either side ends; a refusal is told on standard error."""
        try:
            async with streaming.connected(self._of, self._path) as stream:
                await streaming.splice(reader, writer, stream)
        except (CommandError, OSError) as error:
            print(f"the display cannot be shown: {error}", file=sys.stderr)
        finally:
            await streaming.close(writer)


async def _show(proxy: _Proxy, port: int, *, viewer: bool) -> int:
    """Listen on this machine only; with a viewer, until that ends."""
    import asyncio

    try:
        server = await asyncio.start_server(proxy.serve, _HOST, port)
    except OSError as error:
        raise CommandError(f"port {port} cannot be listened on: {error.strerror}; choose another --port") from error
    try:
        port = server.sockets[0].getsockname()[1]
        command = _viewer(port) if viewer else None
        if command is not None:
            process = await asyncio.create_subprocess_exec(*command)
            return await process.wait()
        print(f"the display is at {_HOST}:{port} (VNC); Ctrl+C ends", flush=True)
        if viewer:
            print(f"no viewer can be started here (known: {', '.join(name for name, _ in _VIEWERS)})", file=sys.stderr)
        await asyncio.Event().wait()
    finally:
        server.close()
    return 0


def _viewer(port: int) -> list[str] | None:
    """The command of an installed viewer; none without a desktop."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    for name, address in _VIEWERS:
        if found := shutil.which(name):
            return [found, address.format(host=_HOST, port=port)]
    return None

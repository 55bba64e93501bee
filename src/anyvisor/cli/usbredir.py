"""`anyvisor usbredir DEVICE VM`: a USB device of this machine in the guest, by usbredirect (Debian: usbredirect)."""

import argparse
import asyncio
import re
import shutil
import sys

from anyvisor.cli import streaming
from anyvisor.cli.api import instance, split_name
from anyvisor.cli.main import CommandError
from anyvisor.cli.naming import check_running
from anyvisor.embedded.instance import Instance

_HOST = "127.0.0.1"
_PROGRAM = "usbredirect"
_DEVICE = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{4}|[0-9]{1,3}-[0-9]{1,3}")


def configure(parser: argparse.ArgumentParser) -> None:
    """The device and the VM; without a device, the port alone."""
    parser.usage = f"{parser.prog} [options] DEVICE VM\n       {parser.prog} [options] --no-launch VM"
    parser.add_argument(
        "words",
        nargs="+",
        metavar="[DEVICE] VM",
        help="VENDOR:PRODUCT or BUS-DEVICE, as lsusb shows; the VM's name",
    )
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("--no-launch", action="store_true", help="start no client: listen and print the address")
    parser.add_argument("--port", type=int, default=0, help="local port to listen on (default: any free one)")


def run(arguments: argparse.Namespace) -> int:
    """Lend the device until its client ends; one connection, as a channel takes one device."""
    words: list[str] = arguments.words
    if len(words) != (1 if arguments.no_launch else 2):
        raise CommandError("name a device and a VM, like `anyvisor usbredir 0951:1666 VM`, or --no-launch and a VM")
    if not 0 <= arguments.port <= 65535:
        raise CommandError(f"{arguments.port} is no port: use 1 to 65535, or none for a free one")
    device = "" if arguments.no_launch else words[0]
    if device and not _DEVICE.fullmatch(device):
        raise CommandError(f"{device!r} is no device: use VENDOR:PRODUCT like 0951:1666, or BUS-DEVICE like 02-03")
    if device and shutil.which(_PROGRAM) is None:
        raise CommandError(f"{_PROGRAM} is not installed (Debian: apt-get install {_PROGRAM}); or use --no-launch")
    name, of = split_name(words[-1]), instance()
    check_running(of, arguments.namespace, name)
    path = streaming.vmi_path(arguments.namespace, name, "usbredir")
    return asyncio.run(_lend(of, path, arguments.port, device))


async def _lend(of: Instance, path: str, port: int, device: str) -> int:
    """The stream is opened first, so that a refusal is told before a device is taken from this machine."""
    client: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    client = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if client.done():
            await streaming.close(writer)
        else:
            client.set_result((reader, writer))

    async with streaming.connected(of, path) as stream:
        try:
            server = await asyncio.start_server(accept, _HOST, port)
        except OSError as error:
            raise CommandError(f"port {port} cannot be listened on: {error.strerror}; choose another --port") from error
        async with server:
            address = f"{_HOST}:{server.sockets[0].getsockname()[1]}"
            process = await _start(device, address)
            ended = asyncio.ensure_future(process.wait() if process is not None else asyncio.Event().wait())
            try:
                await asyncio.wait((client, ended), return_when=asyncio.FIRST_COMPLETED)
                if client.done():
                    await streaming.splice(*client.result(), stream)
                    await streaming.close(client.result()[1])
            finally:
                ended.cancel()
                code = await _end(process)
    return code


async def _start(device: str, address: str) -> asyncio.subprocess.Process | None:
    if not device:
        print(f"the VM waits for a USB device at {address} (usbredir); Ctrl+C ends", flush=True)
        return None
    process = await asyncio.create_subprocess_exec(_PROGRAM, "--device", device, "--to", address)
    print(f"device {device} is lent to the VM; Ctrl+C takes it back", file=sys.stderr)
    return process


async def _end(process: asyncio.subprocess.Process | None) -> int:
    """The client's own exit code; one that outlived its stream is ended."""
    if process is None:
        return 0
    if process.returncode is None:
        process.terminate()
    return abs(await process.wait())

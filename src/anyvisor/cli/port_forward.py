"""`anyvisor port-forward VM [udp/]LOCAL[:REMOTE]...`: ports of this machine that lead to ports of a guest."""

import argparse
import asyncio
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from anyvisor.cli import streaming
from anyvisor.cli.api import instance, split_name
from anyvisor.cli.main import CommandError
from anyvisor.cli.naming import check_running
from anyvisor.embedded.instance import Instance

if TYPE_CHECKING:
    import aiohttp

EXAMPLES: Final = """examples:
  anyvisor port-forward web 8080:80            127.0.0.1:8080 leads to port 80 of the guest
  anyvisor port-forward vmi/web 8022:22 udp/53  two ports, the second by UDP
  anyvisor port-forward web :22                 any free local port
  ssh -o ProxyCommand='anyvisor port-forward --stdio web 22' root@web"""
_PORT: Final = re.compile(r"(?:(tcp|udp)/)?(\d{0,5})(?::(\d{1,5}))?")
UDP_IDLE_SECONDS: Final = 60.0
UDP_CLIENTS: Final = 64
"""Clients of one UDP port whose answers find their way back."""


@dataclass(frozen=True, slots=True)
class Forward:
    """One local port; `local` 0 is any free one."""

    protocol: str
    local: int
    remote: int

    def path(self, namespace: str, name: str) -> str:
        """Of the stream."""
        return streaming.vmi_path(namespace, name, f"portforward/{self.remote}/{self.protocol}")


def parse(text: str) -> Forward:
    """Read `[tcp/|udp/]LOCAL[:REMOTE]` or `:REMOTE`; raises CommandError."""
    found = _PORT.fullmatch(text)
    if found is None or not (found[2] or found[3]):
        raise CommandError(f"{text!r} is no port: use LOCAL:REMOTE, such as 8022:22, or udp/LOCAL:REMOTE")
    local, remote = int(found[2] or 0), int(found[3] or found[2])
    if local > 65535 or not 0 < remote <= 65535:
        raise CommandError(f"{text!r} is no port: ports go from 1 to 65535")
    return Forward(found[1] or "tcp", local, remote)


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM and its ports."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("vm", metavar="VM", help="name of the VM (NAME or vm/NAME)")
    parser.add_argument("ports", nargs="+", metavar="[udp/]LOCAL[:REMOTE]", help="ports; LOCAL may be left out")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("--address", default="127.0.0.1", help="local address to listen on (default: 127.0.0.1)")
    parser.add_argument("--stdio", action="store_true", help="use standard input and output, for ssh's ProxyCommand")


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted; with --stdio, until either side ends."""
    forwards = [parse(text) for text in arguments.ports]
    name, of = split_name(arguments.vm), instance()
    if not arguments.stdio:
        check_running(of, arguments.namespace, name)
        return asyncio.run(_serve(_Forwarder(of, arguments.namespace, name), arguments.address, forwards))
    if len(forwards) != 1 or forwards[0].protocol != "tcp":
        raise CommandError("--stdio takes one TCP port, such as `port-forward --stdio VM 22`")
    asyncio.run(_stdio(of, forwards[0].path(arguments.namespace, name)))
    return 0


async def _stdio(of: Instance, path: str) -> None:
    """Until either side ends: over a websocket, the end of the input cannot be told without ending all."""
    loop = asyncio.get_running_loop()
    async with streaming.connected(of, path) as stream:
        reader = asyncio.StreamReader(loop=loop)
        try:
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        except ValueError:  # a regular file, which is always readable
            reader.feed_data(sys.stdin.buffer.read())
            reader.feed_eof()
        await streaming.splice(reader, _StandardOutput(), stream)


class _StandardOutput:
    """Blocks while its reader is busy: there is one stream and nobody else to wait for."""

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)

    async def drain(self) -> None:
        sys.stdout.buffer.flush()


@dataclass(slots=True)
class _Forwarder:
    """Carries each local connection, or the datagrams of each local client, over a stream of its own."""

    of: Instance
    namespace: str
    name: str
    tasks: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])

    async def tcp(self, forward: Forward, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; a refusal is told on standard error."""
        try:
            async with streaming.connected(self.of, forward.path(self.namespace, self.name)) as stream:
                await streaming.splice(reader, writer, stream)
        except (CommandError, OSError) as error:
            print(f"a connection to port {forward.remote} of {self.name} ended: {error}", file=sys.stderr)
        finally:
            await streaming.close(writer)

    def udp(self, forward: Forward, port: "_UdpPort", client: tuple[str, int], mail: "asyncio.Queue[bytes]") -> None:
        """One client, until it was quiet for a while."""
        task = asyncio.get_running_loop().create_task(self._udp(forward, port, client, mail))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _udp(
        self, forward: Forward, port: "_UdpPort", client: tuple[str, int], mail: "asyncio.Queue[bytes]"
    ) -> None:
        async def answers(stream: "aiohttp.ClientWebSocketResponse") -> None:
            async for message in stream:
                port.answer(streaming.content(message), client)

        try:
            async with streaming.connected(self.of, forward.path(self.namespace, self.name)) as stream:
                receiving = asyncio.ensure_future(answers(stream))
                try:
                    while not receiving.done():
                        async with asyncio.timeout(UDP_IDLE_SECONDS):
                            await stream.send_bytes(await mail.get())
                finally:
                    receiving.cancel()
        except TimeoutError:
            pass
        except (CommandError, OSError) as error:
            print(f"datagrams to port {forward.remote} of {self.name} were lost: {error}", file=sys.stderr)
        finally:
            port.forget(client)


class _UdpPort(asyncio.DatagramProtocol):
    """A local UDP port with its clients."""

    def __init__(self, forwarder: _Forwarder, forward: Forward) -> None:
        self._forwarder, self._forward = forwarder, forward
        self._clients: dict[tuple[str, int], asyncio.Queue[bytes]] = {}
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        mail = self._clients.get(addr)
        if mail is None:
            if len(self._clients) >= UDP_CLIENTS:
                return
            mail = self._clients[addr] = asyncio.Queue(UDP_CLIENTS)
            self._forwarder.udp(self._forward, self, addr, mail)
        if not mail.full():  # else it is lost, as on a network
            mail.put_nowait(data)

    def answer(self, data: bytes, client: tuple[str, int]) -> None:
        """Send the guest's datagram to a client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(data, client)

    def forget(self, client: tuple[str, int]) -> None:
        """The client was quiet, or the guest is gone."""
        self._clients.pop(client, None)


async def _serve(forwarder: _Forwarder, address: str, forwards: list[Forward]) -> int:
    for forward in forwards:
        try:
            port = await _listen(forwarder, address, forward)
        except OSError as error:
            why = error.strerror or error
            raise CommandError(f"{forward.protocol} port {forward.local} of {address} cannot be used: {why}") from error
        print(f"{address}:{port}/{forward.protocol} leads to port {forward.remote} of {forwarder.name}", flush=True)
    print("Ctrl+C ends", file=sys.stderr)
    await asyncio.Event().wait()
    return 0


async def _listen(forwarder: _Forwarder, address: str, forward: Forward) -> int:
    if forward.protocol == "udp":
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _UdpPort(forwarder, forward), local_addr=(address, forward.local)
        )
        return transport.get_extra_info("sockname")[1]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await forwarder.tcp(forward, reader, writer)

    server = await asyncio.start_server(serve, address, forward.local)
    return server.sockets[0].getsockname()[1]

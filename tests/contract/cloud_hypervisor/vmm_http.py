"""The test VMM's program: command line, signals, and the HTTP layer with its own ways of refusing.

Faults to order (the knobs): `slow` {path: seconds}, `die` [paths] (exit status 1 without an answer), `loop_dead`
[paths], `garbage` [paths], `refuse` [paths] (as the HTTP layer does), `version`, `kvm` ("runs", "dies", "hangs").
"""

import array
import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from vmm import CONNECTIONS, LIMIT, ApiError, Vmm

ROOT = "/api/v1/"
BARE = {"vm.boot", "vm.pause", "vm.resume", "vm.reboot", "vm.shutdown", "vm.delete", "vm.power-button", "vmm.shutdown"}


class Connection:
    """One client."""

    def __init__(self, server: "Server", client: socket.socket) -> None:
        client.setblocking(False)
        self.server = server
        self.socket = client
        self.buffer = bytearray()
        self.files: list[int] = []
        self.busy: asyncio.Task[None] | None = None
        asyncio.get_running_loop().add_reader(client, self.receive)

    def receive(self) -> None:
        space = socket.CMSG_SPACE(4 * 253)
        try:
            data, ancillary, _, _ = self.socket.recvmsg(65536, space)
        except OSError:
            data, ancillary = b"", []
        for _, _, rights in ancillary:
            numbers = array.array("i")
            numbers.frombytes(rights)
            self.files += numbers
        if not data:
            self.close()
            return
        self.buffer += data
        if self.busy is None:
            self.busy = asyncio.get_running_loop().create_task(self.serve())

    async def serve(self) -> None:
        while (request := self.request()) is not None:
            await self.server.answer(self, *request)
        self.busy = None

    def request(self) -> tuple[str, str, bytes] | None:
        head, separator, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        if not separator:
            return None
        lines = head.decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        length = int(headers.get("content-length", 0))
        if length > LIMIT:
            self.buffer.clear()
            for _ in range(3):
                self.refuse(f"Request payload with size {length} is larger than the limit of {LIMIT}")
            return None
        if len(rest) < length:
            return None
        self.buffer = bytearray(rest[length:])
        return method, path, rest[:length]

    def refuse(self, why: str) -> None:
        """As the HTTP library itself does: another server name, and a body that need not be JSON."""
        body = f'{{ "error": "{why}\nAll previous unanswered requests will be dropped." }}'
        self.send(f"HTTP/1.1 400 \r\nServer: Firecracker API\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def respond(self, status: int, body: Any = None) -> None:
        text = "" if body is None else json.dumps(body, separators=(",", ":"))
        head = f"HTTP/1.1 {status} \r\nServer: Cloud Hypervisor API\r\nConnection: keep-alive\r\n"
        if status != 204:
            head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        self.send(f"{head}\r\n{text}".encode())

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError:
            self.close()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.socket)
        self.socket.close()
        self.server.connections.discard(self)


class Server:
    """Accepts, and hands one request after another to the VMM."""

    def __init__(self, listener: socket.socket, vmm: Vmm) -> None:
        self.vmm = vmm
        self.connections: set[Connection] = set()
        self.loop_turn = asyncio.Lock()
        listener.setblocking(False)
        self.listener = listener
        asyncio.get_running_loop().add_reader(listener, self.accept)
        self.gets = {"vmm.ping": vmm.ping, "vm.info": vmm.info, "vm.counters": vmm.counters}
        self.bare = {
            "vm.boot": vmm.boot,
            "vm.pause": lambda: vmm.pause(True),
            "vm.resume": lambda: vmm.pause(False),
            "vm.reboot": vmm.reboot,
            "vm.shutdown": vmm.shutdown,
            "vm.delete": vmm.delete,
            "vm.power-button": vmm.press,
        }
        self.puts = {
            "vm.create": vmm.create,
            "vm.add-disk": vmm.add_disk,
            "vm.add-net": vmm.add_net,
            "vm.remove-device": vmm.remove,
            "vm.resize": vmm.resize,
            "vm.resize-disk": vmm.resize_disk,
        }

    def accept(self) -> None:
        client, _ = self.listener.accept()
        if len(self.connections) >= CONNECTIONS:
            client.close()
            return
        self.connections.add(Connection(self, client))

    async def answer(self, connection: Connection, method: str, path: str, body: bytes) -> None:
        name = path.removeprefix(ROOT)
        files, connection.files = connection.files, []
        async with self.loop_turn:
            await self.fault(connection, name)
            try:
                found = self.call(method, name, body, files)
            except ApiError as error:
                connection.respond(error.status, error.chain if error.chain else None)
            else:
                connection.respond(200 if found is not None else 204, found)
                if name == "vmm.shutdown":
                    self.vmm.later(self.vmm.end)
            finally:
                for descriptor in files:
                    os.close(descriptor)

    async def fault(self, connection: Connection, name: str) -> None:
        knobs = self.vmm.knobs
        if seconds := knobs.get("slow", {}).get(name):
            await asyncio.sleep(seconds)
        if name in knobs.get("die", []):
            os._exit(1)
        if name in knobs.get("garbage", []):
            connection.send(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")
        if name in knobs.get("refuse", []):
            connection.refuse("out of order")

    def call(self, method: str, name: str, body: bytes, files: list[int]) -> Any:
        if name in self.vmm.knobs.get("loop_dead", []):
            raise ApiError(500, "API response receive error", "receiving on a closed channel")
        if name in self.gets and method == "GET":
            return self.gets[name]()
        if name in BARE:
            if method != "PUT" or body:
                raise ApiError(400, "Bad Request")
            return {} if name == "vmm.shutdown" else self.bare[name]()
        if name in self.puts and method == "PUT":
            if not body:
                raise ApiError(400)
            try:
                content = json.loads(body)
            except ValueError as error:
                raise ApiError(400, "Failed to deserialize JSON", str(error)) from error
            return self.puts[name](content, files)
        raise ApiError(404, "Not Found")


async def serve(listener: socket.socket, events: int, no_shutdown: bool, knobs: dict[str, Any]) -> None:
    vmm = Vmm(events, no_shutdown, knobs)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, vmm.end)
    Server(listener, vmm)
    await vmm.done.wait()


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1] if name in arguments else ""


def run_kernel(arguments: list[str], kvm: str) -> None:
    """`--kernel`: the guest is the probe, and what it writes depends on the KVM that is played."""
    if kvm == "hangs":
        time.sleep(600)
    if kvm == "runs":
        Path(option(arguments, "--serial").removeprefix("file=")).write_bytes(b"K")
    else:
        print("VCPU generated error: VcpuRun(InternalError)", file=sys.stderr)


def main(knobs: dict[str, Any]) -> None:
    arguments = sys.argv[1:]
    if "--version" in arguments:
        print(f"cloud-hypervisor v{knobs.get('version', '53.0').removesuffix('.0')}.0".replace(".0.0", ".0"))
        return
    if "--kernel" in arguments:
        run_kernel(arguments, knobs.get("kvm", "runs"))
        return
    listener = socket.socket(fileno=int(option(arguments, "--api-socket").removeprefix("fd=")))
    events = int(option(arguments, "--event-monitor").removeprefix("fd="))
    asyncio.run(serve(listener, events, "--no-shutdown" in arguments, knobs))

"""What the benches of the API server stand on: our server and the official one as processes, and a cheap client.

The client is one event loop with plain sockets, the same for every server, so that what it costs is the same for all.
"""

import asyncio
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from tests.bench.test_admission import vmi
from tests.cluster.conftest import programs
from tests.cluster.kit.control_plane import ControlPlane, free_ports
from tests.cluster.kit.processes import Processes
from tests.contract.apiserver.pki import make_pki

Json = dict[str, Any]
SERVER = Path(__file__).with_name("apiserver_serve.py")
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
NAME = b"NAME-OF-THE-OBJECT"


def machine(size: int = 2200) -> bytes:
    """A VMI of about `size` bytes as it is sent; NAME stands where its name goes."""
    obj = vmi(1, 1)
    obj["spec"].pop("evictionStrategy")
    obj["metadata"] = {
        "name": NAME.decode(),
        "namespace": "default",
        "labels": {"size": "large" if size > 4000 else "small"},
    }
    lacking = size - len(json.dumps(obj))
    if lacking > 0:
        obj["metadata"]["annotations"] = {"example.com/note": "x" * lacking}
    return json.dumps(obj).encode()


@dataclass
class Target:
    """A server under test: where it is, who may speak to it, and its processes."""

    name: str
    port: int
    tls: ssl.SSLContext | None
    pids: list[int]
    plain_port: int = 0
    """Without TLS, where it has that."""
    started: float = 0.0
    """Seconds from the start of its process until it was ready."""
    token: str = ""


def admin_tls(config: Path) -> ssl.SSLContext:
    """The client's context of a kubeconfig with a client certificate."""
    text: Json = yaml.safe_load(config.read_text())
    cluster, user = text["clusters"][0]["cluster"], text["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context


@contextlib.contextmanager
def ours(place: Path | None = None) -> Generator[Target]:
    """Our API server with the real definitions and admission, without controllers."""
    root = place or Path(tempfile.mkdtemp(prefix="av-bench-", dir="/tmp"))
    pki = make_pki(Path(tempfile.mkdtemp(dir=root)))
    port, plain = free_ports(2)
    files = [str(path) for path in (pki.server.cert, pki.server.key, pki.ca.cert)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(root), str(port), str(plain), *files],
        stdout=subprocess.PIPE,
        env={**environment, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "av-bench-pyc")},
    )
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
    started = time.perf_counter() - start
    context = ssl.create_default_context(cafile=str(pki.ca.cert))
    admin = pki.client("admin", ("system:masters",))
    context.load_cert_chain(admin.cert, admin.key)
    try:
        yield Target("ours", port, context, [process.pid], plain, started, "bench")
    finally:
        process.terminate()
        process.wait(30)
        if place is None:
            shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def etcd() -> Generator[tuple[int, int]]:
    """An etcd that makes its writes durable, as it does by default; its client port and its pid."""
    binary = programs("apiserver") / "etcd"
    root = Path(tempfile.mkdtemp(prefix="av-bench-", dir="/tmp"))
    client, peer = free_ports(2)
    processes = Processes(root / "log")
    urls = [f"http://127.0.0.1:{port}" for port in (client, peer)]
    flags = [f"--data-dir={root / 'data'}", "--log-level=error", f"--listen-client-urls={urls[0]}"]
    flags += [f"--advertise-client-urls={urls[0]}", f"--listen-peer-urls={urls[1]}"]
    flags += [f"--initial-advertise-peer-urls={urls[1]}", f"--initial-cluster=default={urls[1]}"]
    try:
        processes.start("etcd", [binary, *flags])
        yield client, processes.pid("etcd")
    finally:
        processes.stop_all()
        shutil.rmtree(root, ignore_errors=True)


class Durable(ControlPlane):
    """A control plane whose etcd makes its writes durable: the kit's own does not, as tests need no disk."""

    def _start_etcd(self) -> None:
        started = self.processes.start

        def start(name: str, command: list[Any]) -> None:
            started(name, [word for word in command if word != "--unsafe-no-fsync"])

        self.processes.start = start  # pyright: ignore[reportAttributeAccessIssue]
        super()._start_etcd()
        self.processes.start = started


@contextlib.contextmanager
def theirs() -> Generator[Target]:
    """kube-apiserver and etcd with the same definition of the VMI."""
    place = Path(tempfile.mkdtemp(prefix="av-bench-", dir="/tmp"))
    plane = Durable(programs("apiserver"), place)
    try:
        start = time.perf_counter()
        plane.up()
        started = time.perf_counter() - start
        path = Path(__file__).parents[2] / "deploy/crds/virtualmachineinstances.kubevirt.io.yaml"
        plane.kubectl("create", "-f", str(path))
        pids = [plane.processes.pid(name) for name in ("apiserver", "etcd")]
        target = Target("kube-apiserver", plane.api_port, admin_tls(plane.admin), pids, started=started)
        asyncio.run(until_served(target))
        yield target
    finally:
        plane.down()
        shutil.rmtree(place, ignore_errors=True)


async def until_served(target: Target) -> None:
    """Wait until the server lists VMIs."""
    async with Connection(target) as connection:
        async with asyncio.timeout(60):
            while (await connection.request("GET", VMIS))[0] != 200:
                await asyncio.sleep(0.1)


@dataclass
class Connection:
    """One keep-alive connection that speaks as much HTTP/1.1 as the servers do."""

    target: Target
    plain: bool = False
    _reader: asyncio.StreamReader = field(init=False)
    _writer: asyncio.StreamWriter = field(init=False)

    async def __aenter__(self) -> Self:
        port = self.target.plain_port if self.plain else self.target.port
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=None if self.plain else self.target.tls, limit=64 << 20
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _send(self, method: str, path: str, body: bytes) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: bench", "Accept: application/json", "User-Agent: bench"]
        if self.plain:
            lines.append(f"Authorization: Bearer {self.target.token}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request; the status and the body."""
        self._send(method, path, body)
        status, headers = await self._head()
        if b"content-length" in headers:
            return status, await self._reader.readexactly(int(headers[b"content-length"]))
        parts: list[bytes] = []
        while chunk := await self._chunk():
            parts.append(chunk)
        return status, b"".join(parts)

    async def watch(self, path: str) -> AsyncIterator[bytes]:
        """Start a watch and yield what comes, in the server's own chunks."""
        self._send("GET", path, b"")
        status, _ = await self._head()
        assert status == 200
        while chunk := await self._chunk():
            yield chunk

    async def _head(self) -> tuple[int, dict[bytes, bytes]]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readline(), 16)
        data = await self._reader.readexactly(size + 2)
        return data[:-2]


async def spread(count: int, clients: int, work: Callable[[int, int], Awaitable[None]]) -> float:
    """Let `clients` tasks do `count` pieces of work together; work per second."""
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for client in range(clients):
            group.create_task(_each(range(client, count, clients), client, work))
    return count / (time.perf_counter() - start)


async def _each(numbers: range, client: int, work: Callable[[int, int], Awaitable[None]]) -> None:
    for number in numbers:
        await work(client, number)

"""Disk and network of a guest, against the same VMM started by hand with the same options.

The command line of ours is taken from the running process; each descriptor in it is opened anew by the bench: files of
the same size, a tap that ends on this machine, sockets. So what differs is what we put around the VMM.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.bench.measure import cpu_seconds, report
from tests.e2e.conftest import BIN, Instance, end, eventually, make_instance, tiny_vm
from tests.guests import linux_measuring_archive

ROUNDS = int(os.environ.get("ANYVISOR_BENCH_ROUNDS", "4"))
DISK_MEBIBYTES = 64
SECONDS = 2.0
NETWORK = "10.213.77.{}"
TUNSETIFF, IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 0x0002, 0x1000, 0x4000
DESCRIPTOR = re.compile(r'(?:"?\bfds?"?[=:]"?|/proc/self/fd/)(\d+)')
SOCKET = re.compile(r"socket,id=([^,]+),fd=(\d+)")
SET = re.compile(r"-add-fd fd=(\d+),set=(\d+)")
LOG = re.compile(r"logfile=/dev/fdset/(\d+)")
RESULT = re.compile(r"MEASURE ([\w-]+)=(\d+)")

Ask = Callable[[str], str]


@dataclass
class Peer:
    """What the guests send to and receive from, on all addresses of this machine."""

    listener: socket.socket = field(default_factory=lambda: socket.create_server(("0.0.0.0", 0)))

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        block = bytes(256 << 10)
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection, contextlib.suppress(OSError):
                    if connection.recv(1) == b"r":
                        while True:
                            connection.sendall(block)
                    while connection.recv(1 << 20):
                        pass


@pytest.fixture(scope="module")
def instance() -> Generator[Instance]:
    made = make_instance()
    made.cli("image", "import", str(linux_measuring_archive()), "--name", "measuring")
    made.up()
    yield made
    end(made)


@pytest.fixture
def peer() -> Generator[Peer]:
    made = Peer()
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    yield made
    made.listener.shutdown(socket.SHUT_RDWR)
    made.listener.close()
    thread.join()


def guest() -> dict[str, Any]:
    """The VM that measures: an empty disk and the pod network."""
    vm = tiny_vm("paths")
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["memory"]["guest"] = "256Mi"
    spec["domain"]["devices"]["autoattachGraphicsDevice"] = False
    spec["domain"]["devices"]["disks"] = [{"name": "data", "disk": {"bus": "virtio"}}]
    spec["volumes"] = [{"name": "data", "emptyDisk": {"capacity": f"{DISK_MEBIBYTES}Mi"}}]
    container = {"image": "measuring", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"}
    spec["domain"]["firmware"]["kernelBoot"] = {"kernelArgs": "console=ttyS0 quiet panic=-1", "container": container}
    return vm


@contextlib.contextmanager
def attached(instance: Instance) -> Generator[Ask]:
    """One console for the whole run: a client that comes and goes would take processor time from the guest."""
    words = [str(BIN / "anyvisor"), "--data-dir", str(instance.data_dir), "console", "paths"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, env=instance.environment, bufsize=0, **pipes) as client:  # type: ignore[call-overload]
        assert client.stdin is not None
        assert client.stdout is not None
        yield typing(client.stdin.write, lambda: os.read(client.stdout.fileno(), 65536))  # type: ignore[union-attr]
        client.kill()


def typing(send: Callable[[bytes], object], receive: Callable[[], bytes]) -> Ask:
    """Ask by typing; the answer is what the console shows until the command has ended."""

    def ask(command: str) -> str:
        marker = f"{time.monotonic_ns():x}"
        send(f"touch /run/quiet; echo BEGIN''-{marker}; {command}; echo END''-{marker}\n".encode())
        return until(receive, f"END-{marker}".encode()).decode(errors="replace").partition(f"BEGIN-{marker}")[2]

    return ask


class ByHand:
    """The same VMM, started without us."""

    def __init__(self, pid: int, place: Path) -> None:
        words = [word.decode() for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
        self._sockets: dict[str, Path] = {}
        self._connected = contextlib.ExitStack()
        self._place = place
        text = " ".join(words)
        names = {int(number): name for name, number in SOCKET.findall(text)}
        wanted = sorted({int(number) for number in DESCRIPTOR.findall(text)})
        logs = set(LOG.findall(text))
        sets = {int(number): of in logs for number, of in SET.findall(text)}
        opened = {
            number: self._file(number, log=sets[number])
            if number in sets
            else self._open(pid, number, names.get(number, ""))
            for number in wanted
        }
        high = {number: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 500) for number, descriptor in opened.items()}
        actions = [(os.POSIX_SPAWN_DUP2, high[number], number) for number in wanted]
        self.pid = os.posix_spawn(words[0], words, {}, file_actions=actions)
        self._group = beside(pid, self.pid)
        for descriptor in (*opened.values(), *high.values()):
            os.close(descriptor)

    def _open(self, pid: int, number: int, name: str) -> int:
        """What stands for a descriptor of theirs."""
        link = os.readlink(f"/proc/{pid}/fd/{number}")
        if link.startswith("socket:"):
            listener = socket.socket(socket.AF_UNIX)
            self._sockets[name] = self._place / f"{number}.sock"
            listener.bind(str(self._sockets[name]))
            listener.listen(1)
            return listener.detach()
        if link == "/dev/net/tun":
            return tap()
        return os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)

    def _file(self, number: int, *, log: bool) -> int:
        """The console's log, or a disk of the guest's: of a descriptor set the VMM itself keeps a copy alone."""
        path = self._place / f"{number}.file"
        if log:
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        os.ftruncate(descriptor, DISK_MEBIBYTES << 20)
        return descriptor

    def run(self) -> None:
        """Let the guest run."""
        with self.connect("control") as control:
            control.sendall(b'{"execute":"qmp_capabilities"}{"execute":"cont"}')
            seen = b""
            while b"RESUME" not in seen:
                seen += control.recv(4096)

    def connect(self, name: str) -> socket.socket:
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(120)
        connected.connect(str(self._sockets[name]))
        return connected

    def console(self) -> Ask:
        connected = self._connected.enter_context(
            self.connect(next(name for name in self._sockets if name.startswith("console-")))
        )
        until(lambda: connected.recv(65536), b"ANYVISOR ready")
        return typing(connected.sendall, lambda: connected.recv(65536))

    def end(self) -> None:
        self._connected.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        if self._group is not None:
            self._group.rmdir()


def beside(pid: int, other: int) -> Path | None:
    """Put `other` into a processor group beside that of `pid`, with the same share; else it would get more."""
    groups = {line.split(":")[1]: line.split(":")[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()}
    root = Path("/sys/fs/cgroup/cpu" if "cpu" in groups else "/sys/fs/cgroup")
    own = root / groups.get("cpu", groups.get("", "")).lstrip("/")
    if not (own / "cgroup.procs").exists() or own == root:
        return None
    made = own.with_name("bench")
    made.mkdir(exist_ok=True)
    for name in ("cpu.shares", "cpu.weight"):
        if (own / name).exists():
            (made / name).write_text((own / name).read_text())
    (made / "cgroup.procs").write_text(str(other))
    return made


def until(receive: Callable[[], bytes], words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        got = receive()
        assert got, seen[-2000:]
        seen += got
    return seen


def tap() -> int:
    """A tap whose other end is this machine's."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", b"avbench0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    for words in (("addr", "add", NETWORK.format(1) + "/24", "dev", "avbench0"), ("link", "set", "avbench0", "up")):
        subprocess.run(["ip", *words], check=True)
    return descriptor


def series(ask: Ask, pid: int, address: str, port: int) -> dict[str, int]:
    """One round of all measurements; what the VMM's processor time carried tells more on a machine that others use."""
    disk = ask(f"measure disk /dev/vda {DISK_MEBIBYTES} {SECONDS}")
    before = cpu_seconds([pid])
    network = ask(f"measure tcp {address} {port} {SECONDS}")
    used = cpu_seconds([pid]) - before
    found = {name: int(value) for name, value in RESULT.findall(disk + network)}
    assert len(found) == 6, disk + network
    found["tcp-per-cpu"] = round((found["tcp-send"] + found["tcp-receive"]) * SECONDS / used)
    return found


def test_disk_and_network_cost_what_the_bare_vmm_costs(instance: Instance, peer: Peer) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make the tap of the other side")
    instance.apply(guest())
    instance.wait_phase("paths")
    [pid] = instance.vmm_pids()
    ours: list[dict[str, int]] = []
    theirs: list[dict[str, int]] = []
    with tempfile.TemporaryDirectory(prefix="av-") as folder:
        other = ByHand(pid, Path(folder))
        try:
            other.run()
            ask_them = other.console()
            ask_them(f"killall udhcpc; ip addr add {NETWORK.format(2)}/24 dev eth0")
            eventually(lambda: "ANYVISOR ready" in instance.console("paths"), 180, lambda: instance.story("paths"))
            host = host_address()
            with attached(instance) as ask_us:
                eventually(lambda: "bytes from" in ask_us(f"ping -c 1 -W 2 {host}"), 60)
                for _ in range(ROUNDS):
                    ours.append(series(ask_us, pid, host, peer.port))
                    theirs.append(series(ask_them, other.pid, NETWORK.format(1), peer.port))
        finally:
            other.end()
    lines = [compared(name, [each[name] for each in ours], [each[name] for each in theirs]) for name in ours[0]]
    report(f"disk and network of a Linux guest, ours and by hand, {ROUNDS} rounds", lines)


def compared(name: str, ours: list[int], theirs: list[int]) -> str:
    a, b = statistics.median(ours), statistics.median(theirs)
    unit = "IOPS" if name.startswith("random") else "KiB" if name.endswith("cpu") else "KiB/s"
    return f"{name:<18} ours {a:10.0f} {unit:<5} by hand {b:10.0f} {unit:<5} ratio {a / b:.2f}"


def host_address() -> str:
    """An address of this machine that a guest of ours can reach: the one of its default route."""
    routes = json.loads(
        subprocess.run(["ip", "-j", "route", "get", "192.0.2.1"], capture_output=True, check=True).stdout
    )
    return str(routes[0]["prefsrc"])

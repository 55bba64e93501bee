"""A libvirt daemon of the test's own, and the driver beside it with the test as its agent."""

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import ClassVar

from anyvisor.hri.v1.machine_pb2 import PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import DescriptorToken, MachineState
from tests.driver_rig import DriverRig
from tests.machine.rig import SECONDS, Guest, socket_path

NOBODY = 65534


class Daemon:
    """An unprivileged libvirtd with its state in `directory`; root's own would be the system's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = directory / "run" / "libvirt" / "libvirt-sock"
        for name in ("run", "home"):
            (directory / name).mkdir(parents=True)
        if os.geteuid() == 0:
            directory.parent.chmod(0o711)
            for path in (directory, directory / "run", directory / "home"):
                os.chown(path, NOBODY, NOBODY)

    @property
    def uri(self) -> str:
        """How to reach it."""
        return f"qemu+unix:///session?socket={self.socket}"

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {
            "HOME": str(self._directory / "home"),
            "XDG_RUNTIME_DIR": str(self._directory / "run"),
            "PATH": os.environ["PATH"],
        }
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a fork takes a millisecond
                [*drop, "libvirtd"], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        async with asyncio.timeout(SECONDS):
            while not self._answers():
                assert self._process.poll() is None, (self._directory / "log").read_text()
                await asyncio.sleep(0.05)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    async def stop(self) -> None:
        """End it; domains go on."""
        if self._process is not None:
            self._process.terminate()
            await asyncio.to_thread(self._process.wait, 20)

    def virsh(self, *words: str) -> str:
        """What another client of the same daemon sees or does."""
        command = ["virsh", "--quiet", "-c", self.uri, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout


class LibvirtRig(DriverRig[Guest]):
    """A process of the libvirt driver and its client."""

    seconds: ClassVar = SECONDS

    def __init__(self, directory: Path, daemon: Daemon) -> None:
        super().__init__(directory, "anyvisor.drivers.libvirt")
        self.daemon = daemon
        self.environment["LIBVIRT_DEFAULT_URI"] = daemon.uri

    async def boot(self, machine: Machine, files: Mapping[str, int]) -> Guest:
        """Prepare and Start; the driver gets every descriptor that it asks for."""
        directory = self.directory / machine.id
        directory.mkdir(mode=0o700)
        prepared = await self.client.prepare(machine, [], generation=1)
        guest = Guest(machine, directory, prepared, self.launcher(directory))
        self.guests.append(guest)
        tokens = [*await self._listeners(guest), *[await self.client.send_descriptor(h, fd) for h, fd in files.items()]]
        await self.done(await self.client.start(machine.id, generation=1, tokens=tokens))
        return guest

    async def adopt(self, guest: Guest) -> MachineState:
        """Give a running machine to a driver that does not know it."""
        tokens = await self._listeners(guest)
        adopted = await self.client.adopt(guest.machine.id, guest.prepared.handle, generation=1, tokens=tokens)
        return adopted.state

    async def _listeners(self, guest: Guest) -> list[DescriptorToken]:
        tokens: list[DescriptorToken] = []
        for endpoint in guest.prepared.endpoints:
            path = socket_path(guest.directory, endpoint.id)
            path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
                listener.listen(4)
                tokens.append(await self.client.send_descriptor(endpoint.id, listener.fileno()))
        return tokens


def handles(prepared: PrepareResponse) -> set[str]:
    """What the driver wants besides listening sockets."""
    return set(prepared.driver_handles) - {endpoint.id for endpoint in prepared.endpoints}


async def heard(guest: Guest, pattern: str) -> str:
    """Wait for a match on the console; returns its first group."""
    async with asyncio.timeout(SECONDS):
        while (match := re.search(pattern, guest.heard)) is None:
            await asyncio.sleep(0.02)
    return match[1] if match.groups() else match[0]


def missing() -> str:
    """Why there can be no daemon here; empty when there can."""
    for program, package in (("libvirtd", "libvirt-daemon"), ("virsh", "libvirt-clients"), ("setpriv", "util-linux")):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            return f"{program} is not installed (Debian: apt-get install {package})"
    if importlib.util.find_spec("libvirt") is None:
        return "libvirt-python is not installed (pip install 'anyvisor[libvirt]', with Debian's libvirt-dev)"
    return ""


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncGenerator[LibvirtRig]:
    """A daemon, and a rig with a driver process."""
    daemon = Daemon(directory / "d")
    await daemon.start()
    rig = LibvirtRig(directory, daemon)
    try:
        await rig.start_driver()
        yield rig
    finally:
        for name in daemon.virsh("list", "--all", "--name").split():
            with contextlib.suppress(subprocess.CalledProcessError):
                daemon.virsh("destroy", name)
            with contextlib.suppress(subprocess.CalledProcessError):
                daemon.virsh("undefine", name)
        await rig.close()
        await daemon.stop()

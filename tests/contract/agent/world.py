"""One simulated node against a real API server: the test plays controller and scheduler, everything else is real."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from node_process import NODE
from testdriver import NAME

from anyvisor.embedded.podrunner import cgroups
from anyvisor.hri.versions import MINOR
from anyvisor.kube.client import Client
from anyvisor.kube.errors import NotFound
from anyvisor.kube.resources import PODS, VMIS
from anyvisor.planning import plan as planning

Json = dict[str, Any]
HERE = Path(__file__).parent
DEADLINE = 60.0
PYTHON = "/usr/bin/python3"
"""The system's: the launcher's user may not reach a virtual environment."""


async def eventually(what: str, look: Callable[[], Awaitable[Any]], seconds: float = DEADLINE) -> Any:
    """What `look` returns once that is true."""
    last: Any = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not (last := await look()):
                await asyncio.sleep(0.02)
            return last
    raise AssertionError(f"not within {seconds:.0f} s: {what}; last seen: {last!r}")


@dataclass
class World:
    """Paths, processes and shortcuts of one test."""

    root: Path
    client: Client
    api: str
    separate: bool
    loop: str = "yes"
    audit: Path | None = None
    """Where the node's process writes what it opens; nowhere when None."""
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("run", "state", "driver", "driver/starts"):
            (self.root / name).mkdir()
        for name in ("driver/starts", "driver", ""):
            (self.root / name).chmod(0o777)
        self.vmm = self.root / "vmm.py"
        self.vmm.write_bytes((HERE / "vmm.py").read_bytes())
        self.vmm.chmod(0o644)
        self.configure()

    def configure(self, workers: int = 32, deadlines: Mapping[str, float] | None = None, minor: int = MINOR) -> None:
        """What the node's process reads when it starts: workers, deadlines of drivers' calls, the core's HRI minor."""
        (self.root / "config.json").write_text(
            json.dumps(
                {
                    "api": self.api,
                    "run": str(self.root / "run"),
                    "state": str(self.root / "state"),
                    "driver": str(self.root / "driver"),
                    "zygote": str(self.root / "zygote.sock"),
                    "instance": self.root.name,
                    "separate": "yes" if self.separate else "no",
                    "uvloop": self.loop,
                    "workers": workers,
                    "deadlines": dict(deadlines or {}),
                    "minor": minor,
                    "audit": str(self.audit) if self.audit else "",
                }
            )
        )

    def start(self, name: str, *command: str) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def start_zygote(self) -> None:
        self.start("zygote", str(HERE / "zygote_process.py"), str(self.root / "zygote.sock"))

    def start_node(self) -> None:
        self.start("node", str(HERE / "node_process.py"), str(self.root / "config.json"))

    def start_driver(self) -> None:
        for name in ("hri.sock", "fd.sock"):
            (self.root / "driver" / name).unlink(missing_ok=True)
        self.start("driver", str(HERE / "testdriver.py"), str(self.root / "driver"), PYTHON, str(self.vmm))

    def start_fake(self, faults: str = "", *arguments: str) -> None:
        hri, fd = self.root / "driver" / "fake-hri.sock", self.root / "driver" / "fake-fd.sock"
        for path in (hri, fd):
            path.unlink(missing_ok=True)
        sockets = ("--hri", str(hri), "--fd", str(fd))
        self.start("fake", "-m", "anyvisor.hri.fake", *sockets, "--faults", faults, *arguments)

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait()

    def faults(self, **faults: str) -> None:
        (self.root / "driver" / "faults").write_text(json.dumps(faults))

    def log(self, name: str = "node") -> str:
        return (self.root / f"{name}.log").read_text()

    def starts(self, machine_id: str) -> list[int]:
        """The pids of all VMMs that were ever started for a machine."""
        file = self.root / "driver" / "starts" / machine_id
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def record(self, machine_id: str) -> Path:
        return self.root / "state" / "machines" / machine_id / "record.json"

    # Objects

    async def make_pod(self, name: str, driver: str = NAME, needs: tuple[str, ...] = (), **spec: Any) -> Json:
        """A VMI and its launcher pod, bound to the node; the VMI as it is then. `needs`: what its plan counts on."""
        domain = {"memory": {"guest": "64Mi"}, "devices": {}}
        vmi = await self.client.create(
            VMIS,
            {
                "metadata": {"name": name, "namespace": "default", "labels": {"kubevirt.io/nodeName": NODE}},
                "spec": {"domain": domain, "terminationGracePeriodSeconds": 10, **spec},
                "status": {"phase": "Scheduling", "nodeName": NODE},
            },
        )
        made = planning.Plan(
            hypervisor_class="test",
            driver=driver,
            driver_version="1.0",
            hri_minor=1,
            manifest_digest="sha256:0",
            verdict="SATISFIED",
            accelerator="auto",
            launch_mode="exec",
            resources=planning.Resources(guest_memory_bytes=64 << 20, overhead_bytes=192 << 20),
            confirmed=needs or (("console.log",) if driver == NAME else ()),
        )
        await self.client.create(
            PODS,
            {
                "metadata": {
                    "name": f"virt-launcher-{name}",
                    "namespace": "default",
                    "labels": {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": vmi["metadata"]["uid"]},
                    "annotations": {"anyvisor.io/plan": planning.encode(made).decode()},
                },
                "spec": {
                    "nodeName": NODE,
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 10,
                    "containers": [{"name": "compute", "image": "launcher"}],
                },
            },
        )
        return vmi

    async def make(self, name: str, driver: str = NAME, **spec: Any) -> Json:
        """The same, handed over to the node once the pod runs."""
        await self.make_pod(name, driver, **spec)
        await self.pod(name, "Running")
        return await self.hand_over(name)

    async def hand_over(self, name: str) -> Json:
        return await self.client.patch(VMIS, name, "default", {"status": {"phase": "Scheduled"}})

    async def get(self, name: str) -> Json | None:
        try:
            return await self.client.get(VMIS, name, "default")
        except NotFound:
            return None

    async def phase(self, name: str, *phases: str, seconds: float = DEADLINE) -> Json:
        """The VMI once it is in one of the phases."""

        async def look() -> Json | None:
            vmi = await self.get(name)
            return vmi if vmi is not None and vmi.get("status", {}).get("phase") in phases else None

        try:
            return await eventually(f"VMI {name} is {phases}", look, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; {await self.get(name)}\n{self.log()[-4000:]}") from None

    async def pod(self, name: str, *phases: str) -> Json:
        async def look() -> Json | None:
            pod = await self.client.get(PODS, f"virt-launcher-{name}", "default")
            return pod if pod.get("status", {}).get("phase") in phases else None

        try:
            return await eventually(f"pod of {name} is {phases}", look)
        except AssertionError as error:
            pod = await self.client.get(PODS, f"virt-launcher-{name}", "default")
            raise AssertionError(f"{error}; {pod}\n{self.log()[-4000:]}") from None

    async def gone(self, name: str) -> None:
        """The pod's object is gone."""

        async def look() -> bool:
            try:
                await self.client.get(PODS, f"virt-launcher-{name}", "default")
            except NotFound:
                return True
            return False

        await eventually(f"pod of {name} is gone", look)

    def agent(self) -> aiohttp.ClientSession:
        """A client of the agent's HTTP interface."""
        connector = aiohttp.UnixConnector(str(self.root / "run" / "agent.sock"))
        return aiohttp.ClientSession("http://agent", connector=connector)

    async def type(self, name: str, word: bytes) -> None:
        """Type a word on the console of a machine."""
        vmi = await self.get(name)
        assert vmi is not None
        path = f"/v1/machines/{vmi['metadata']['uid']}/streams/console"
        async with self.agent() as agent, agent.ws_connect(path) as console:
            await console.send_bytes(word + b"\n")
            # Read on, as the guest's answer shows that it took the word.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    async for _ in console:
                        continue

    async def condition(self, name: str, type_: str, reason: str) -> Json:
        """The condition once it has this reason."""

        async def look() -> Json | None:
            vmi = await self.get(name) or {}
            found: list[Json] = vmi.get("status", {}).get("conditions") or []
            return next((c for c in found if c["type"] == type_ and c.get("reason") == reason), None)

        try:
            return await eventually(f"condition {type_} of {name} says {reason}", look)
        except AssertionError as error:
            raise AssertionError(f"{error}; {await self.get(name)}\n{self.log()[-4000:]}") from None

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)
        for mount in _mounts(self.root):
            subprocess.run(["umount", "-l", mount], check=False)
        for controller in cgroups.ROOT.iterdir():
            for path in (controller / cgroups.PARENT / self.root.name).glob("*"):
                with contextlib.suppress(OSError):
                    path.rmdir()
            with contextlib.suppress(OSError):
                (controller / cgroups.PARENT / self.root.name).rmdir()

    def left(self) -> list[int]:
        """Launchers and VMMs of this test that still run."""
        return [pid for pid, command in _processes() if str(self.root) in command]


def _processes() -> Iterator[tuple[int, str]]:
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and int(path.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def _mounts(root: Path) -> list[str]:
    lines = Path("/proc/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(str(root))]


def canonical(obj: Json) -> bytes:
    return msgspec.json.encode(obj, order="sorted")

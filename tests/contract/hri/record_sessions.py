"""Record each driver that runs here: `python -m tests.contract.hri.record_sessions [NAME...]`.

Do so for a new minor, and keep the old files. Cloud Hypervisor is the program that ANYVISOR_CLOUD_HYPERVISOR names; the
example in Go has to be built before.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict

from anyvisor.hri.conformance.launcher import Launcher
from anyvisor.hri.conformance.process import driver_process
from anyvisor.hri.conformance.session import small_machine
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.kit.server import DriverServer
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, PrepareResponse, ResizeDisk
from anyvisor.hri.v1.machine_spec_pb2 import (
    Cpu,
    Disk,
    Kernel,
    Lifecycle,
    Machine,
    Memory,
    Nic,
    TapBackend,
    VolumeHandle,
)
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_UNSPECIFIED, Accelerator, DescriptorToken
from anyvisor.hri.versions import MINOR
from guests import build
from tests.contract.hri.sessions import FOLDER, RecordingClient, Subject, scenario
from tests.libvirt_daemon import Daemon

EXAMPLE = Path(__file__).parents[3] / "examples" / "drivers" / "uml"
Begin = Callable[[PrepareResponse], Any]


def machine(accelerator: Accelerator = ACCELERATOR_UNSPECIFIED) -> Machine:
    """The small one of the conformance suite, without a RAM disk."""
    made = small_machine()
    made.id, made.name, made.accelerator = "recorded-1", "default/recorded", accelerator
    made.boot.kernel.CopyFrom(Kernel(kernel_handle="kernel", command_line="console=ttyS0"))
    return made


def rich() -> Machine:
    """With disks and interfaces, for a driver that opens none of them."""
    layer = VolumeHandle.Layer(handle="root/0", format=VolumeHandle.Layer.FORMAT_QCOW2)
    volume = VolumeHandle(layers=[layer], size_bytes=1 << 30)
    made = machine()
    made.MergeFrom(
        Machine(
            cpu=Cpu(cores=2),
            memory=Memory(size_bytes=1 << 28),
            disks=[Disk(id="root", kind=Disk.KIND_DISK, bus=Disk.BUS_VIRTIO, volume=volume)],
            nics=[Nic(id="default", model=Nic.MODEL_VIRTIO, mac="02:00:00:00:00:01", tap=TapBackend(handles=["tap0"]))],
            lifecycle=Lifecycle(grace_seconds=30),
        )
    )
    return made


async def nothing(_prepared: PrepareResponse) -> Sequence[DescriptorToken]:
    """There is no VMM."""
    return ()


@asynccontextmanager
async def fake(folder: Path) -> AsyncGenerator[tuple[RecordingClient, Subject]]:
    """Books alone."""
    change = ApplyRequest(resize_disk=ResizeDisk(disk_id="root", size_bytes=1 << 31))
    hri, fd = folder / "hri", folder / "fd"
    async with DriverServer(FakeDriver(), hri, fd), RecordingClient(hri, fd) as client:
        yield client, Subject(rich(), ["disk.bus", "nic.model"], change, nothing)


def executed(command: str, spec: Machine, files: dict[str, Path]) -> Callable[[Path], Any]:
    """A driver whose launch plan is executed here."""

    @asynccontextmanager
    async def subject(folder: Path) -> AsyncGenerator[tuple[RecordingClient, Subject]]:
        hri, fd = folder / "hri", folder / "fd"
        words = f"{command} --hri {{hri}} --fd {{fd}}"
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(driver_process(words, str(hri), str(fd)))
            client = await stack.enter_async_context(RecordingClient(hri, fd))
            handles = {name: os.open(path, os.O_RDONLY) for name, path in files.items()}

            async def begin(prepared: PrepareResponse) -> Sequence[DescriptorToken]:
                launcher = await stack.enter_async_context(Launcher(prepared, handles))
                launcher.start()
                tokens: list[DescriptorToken] = []
                for handle in prepared.driver_handles:
                    descriptor = await launcher.descriptor(handle)
                    tokens.append(await client.send_descriptor(handle, descriptor))
                    os.close(descriptor)
                return tokens

            yield client, Subject(spec, ["console.serial", "memory.size"], None, begin)

    return subject


@asynccontextmanager
async def libvirt(folder: Path) -> AsyncGenerator[tuple[RecordingClient, Subject]]:
    """A daemon of its own runs the guest; the driver gets listening sockets."""
    daemon = Daemon(folder / "d")
    daemon.start()
    hri, fd = folder / "hri", folder / "fd"
    os.environ["LIBVIRT_DEFAULT_URI"] = daemon.uri
    command = f"{sys.executable} -m anyvisor.drivers.libvirt --hri {{hri}} --fd {{fd}}"
    try:
        async with driver_process(command, str(hri), str(fd)), RecordingClient(hri, fd) as client:

            async def begin(prepared: PrepareResponse) -> Sequence[DescriptorToken]:
                kernel = os.open(build.tiny(), os.O_RDONLY)
                tokens = [await client.send_descriptor("kernel", kernel)]
                os.close(kernel)
                for endpoint in prepared.endpoints:
                    with socket.socket(socket.AF_UNIX) as listener:
                        listener.bind(str(folder / endpoint.id.replace("/", "-")))
                        listener.listen(4)
                        tokens.append(await client.send_descriptor(endpoint.id, listener.fileno()))
                return tokens

            yield client, Subject(machine(ACCELERATOR_EMULATION), ["console.serial", "memory.size"], None, begin)
    finally:
        daemon.clear()
        daemon.stop()


def subjects() -> dict[str, Callable[[Path], AbstractAsyncContextManager[tuple[RecordingClient, Subject]]]]:
    """By the names of their files."""
    python = f"{sys.executable} -m anyvisor.drivers"
    uml = ParseDict(json.loads((EXAMPLE / "machine.json").read_text()), Machine())
    uml.id = "recorded-1"
    return {
        "fake": fake,
        "qemu": executed(f"{python}.qemu", machine(ACCELERATOR_EMULATION), {"kernel": build.tiny()}),
        "cloud-hypervisor": executed(f"{python}.cloud_hypervisor", machine(), {"kernel": build.tiny64()}),
        "libvirt": libvirt,
        "uml": executed(f"{EXAMPLE}/uml-driver", uml, {"initrd": build.linux_reporting().initrd}),
    }


async def record(name: str) -> None:
    """Record one driver."""
    with tempfile.TemporaryDirectory(prefix="av-", dir="/tmp") as folder:
        async with subjects()[name](Path(folder)) as (client, subject):
            seen = await scenario(client, subject)
        data = {
            "minor": client.minor,
            "spec": MessageToDict(subject.spec),
            "needs": list(subject.needs),
            "change": MessageToDict(subject.change) if subject.change is not None else None,
            "seen": json.loads(json.dumps(seen)),
            "exchanges": [vars(exchange) for exchange in client.exchanges],
        }
        text = json.dumps(data, indent=1).replace(folder, "/run/recorded")
    for place in (os.environ.get("ANYVISOR_CLOUD_HYPERVISOR", ""), str(EXAMPLE)):
        text = text.replace(place, "/usr/bin/vmm") if place else text
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}-1.{MINOR}.json").write_text(text + "\n")
    print(name, seen)


def main() -> None:
    """Record those that are named, or all."""
    for name in sys.argv[1:] or subjects():
        asyncio.run(record(name))


if __name__ == "__main__":
    main()

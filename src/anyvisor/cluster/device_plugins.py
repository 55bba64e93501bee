"""Devices that many containers share, offered to the kubelet: kvm, tun, vhost-net, vhost-vsock.

One plugin per device, with many slots. A container gets a node of ours that everybody may open, so that launchers need
no group of the host and the host's own node is left as it is. Healthy is what can be opened.
https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
"""

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from grpclib.client import Channel
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.server import Server, Stream

from anyvisor.agent import linux
from anyvisor.cluster.kubelet.deviceplugin_grpc import DevicePluginBase, RegistrationStub
from anyvisor.cluster.kubelet.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    Device,
    DevicePluginOptions,
    DeviceSpec,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
    RegisterRequest,
)

log = logging.getLogger(__name__)

KUBELET: Final = "kubelet.sock"
VERSION: Final = "v1beta1"
SLOTS: Final = 1000
LOOK_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 2.0
DEVICES: Final[Mapping[str, str]] = {
    "kvm": "kvm",
    "tun": "net/tun",
    "vhost-net": "vhost-net",
    "vhost-vsock": "vhost-vsock",
}
"""Name of the resource below `devices.kubevirt.io/`, and the node below /dev."""
_NEEDED: Final = ("kvm",)
"""Opened to tell their health; opening others would already make something."""


@dataclass(slots=True)
class SharedDevice(DevicePluginBase):
    """The plugin of one device."""

    name: str
    node: str
    host_path: str
    """Where the kubelet finds the node that containers get."""
    healthy: bool = False
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def resource(self) -> str:
        """The resource's name."""
        return f"devices.kubevirt.io/{self.name}"

    async def set_health(self, healthy: bool) -> None:
        """Tell the kubelet."""
        async with self.changed:
            if healthy != self.healthy:
                self.healthy = healthy
                self.changed.notify_all()

    async def GetDevicePluginOptions(self, stream: Stream[Empty, DevicePluginOptions]) -> None:  # noqa: N802
        """No options."""
        await stream.recv_message()
        await stream.send_message(DevicePluginOptions())

    async def ListAndWatch(self, stream: Stream[Empty, ListAndWatchResponse]) -> None:  # noqa: N802
        """Tell all slots now, and again when the device's health changes."""
        await stream.recv_message()
        while True:
            async with self.changed:
                health = "Healthy" if self.healthy else "Unhealthy"
            devices = [Device(ID=f"{self.name}-{number}", health=health) for number in range(SLOTS)]
            await stream.send_message(ListAndWatchResponse(devices=devices))
            async with self.changed:
                told = health == "Healthy"
                await self.changed.wait_for(lambda told=told: self.healthy != told)

    async def Allocate(self, stream: Stream[AllocateRequest, AllocateResponse]) -> None:  # noqa: N802
        """Every container gets the same node."""
        request = await stream.recv_message()
        assert request is not None
        spec = DeviceSpec(container_path=f"/dev/{self.node}", host_path=self.host_path, permissions="rw")
        answers = [ContainerAllocateResponse(devices=[spec]) for _ in request.container_requests]
        await stream.send_message(AllocateResponse(container_responses=answers))

    async def GetPreferredAllocation(  # noqa: N802
        self, stream: Stream[PreferredAllocationRequest, PreferredAllocationResponse]
    ) -> None:
        """All slots are alike."""
        await stream.recv_message()
        await stream.send_message(PreferredAllocationResponse())

    async def PreStartContainer(  # noqa: N802
        self, stream: Stream[PreStartContainerRequest, PreStartContainerResponse]
    ) -> None:
        """Nothing to do."""
        await stream.recv_message()
        await stream.send_message(PreStartContainerResponse())


def found_devices(host_dev: Path, nodes: Path, host_nodes: str) -> list[SharedDevice]:
    """The devices that this host has, each with a node of our own below `nodes` (`host_nodes` on the host).

    Where no node can be made, containers get the host's own.
    """
    found: list[SharedDevice] = []
    for name, node in DEVICES.items():
        try:
            status = os.stat(host_dev / node)
        except OSError:
            continue
        if stat.S_ISCHR(status.st_mode):
            found.append(SharedDevice(name, node, _own_node(name, node, status.st_rdev, nodes, host_nodes)))
    return found


def _own_node(name: str, node: str, number: int, nodes: Path, host_nodes: str) -> str:
    path = nodes / name
    try:
        nodes.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, number)
        path.chmod(0o666)
    except OSError as error:
        log.warning("device %s: no node of our own (%s); containers get the host's", name, error)
        return f"/dev/{node}"
    return f"{host_nodes}/{name}"


class DevicePlugins:
    """Serves the plugins and registers them, again whenever the kubelet has started anew."""

    def __init__(self, directory: Path, host_dev: Path, devices: Sequence[SharedDevice]) -> None:
        self._directory = directory
        self._host_dev = host_dev
        self.devices = devices

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            for device in self.devices:
                group.create_task(self._serve(device), name=f"device plugin {device.name}")
            group.create_task(self._watch_health(), name="device health")

    async def _watch_health(self) -> None:
        while True:
            for device in self.devices:
                await device.set_health(await asyncio.to_thread(self._usable, device))
            await asyncio.sleep(LOOK_SECONDS)

    def _usable(self, device: SharedDevice) -> bool:
        path = self._host_dev / device.node
        if device.name not in _NEEDED:
            return path.exists()
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except PermissionError:
            # Our own container may not open it; the driver, which may, tells whether it runs guests.
            return True
        except OSError:
            return False
        return True

    async def _serve(self, device: SharedDevice) -> None:
        """The kubelet empties its directory when it starts: then the socket is made and registered again."""
        name = f"anyvisor-{device.name}.sock"
        path = self._directory / name
        while True:
            path.unlink(missing_ok=True)
            server = Server([device])
            try:
                await server.start(path=str(path))
                await self._register(device, name)
                await self._until_gone(path)
            except (OSError, GRPCError, ProtocolError, StreamTerminatedError, TimeoutError) as error:
                log.info("device %s is not registered, again soon: %s", device.name, error)
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                path.unlink(missing_ok=True)
                server.close()
                with contextlib.suppress(OSError):
                    await server.wait_closed()

    async def _register(self, device: SharedDevice, name: str) -> None:
        channel = Channel(path=str(self._directory / KUBELET))  # pyright: ignore[reportUnknownMemberType]
        try:
            request = RegisterRequest(version=VERSION, endpoint=name, resource_name=device.resource)
            await RegistrationStub(channel).Register(request, timeout=5.0)
        finally:
            channel.close()
        log.info("device %s is registered", device.name)

    async def _until_gone(self, path: Path) -> None:
        """Wait until our socket is removed: the sign that the kubelet started anew."""
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        watch = linux.Watch.open(descriptor)
        try:
            while await asyncio.to_thread(path.exists):
                await watch.changed()
        finally:
            watch.close()
            os.close(descriptor)

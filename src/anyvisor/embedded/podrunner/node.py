"""The Node object and its Lease: what the scheduler places pods by, and the sign that this node lives.

The lease is renewed often and is small; the node's status is written only when it changed (KEP-589).
"""

import asyncio
import contextlib
import logging
import os
import platform
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from anyvisor import __version__
from anyvisor.api.meta import Json, list_at, object_at
from anyvisor.kube.client import Client
from anyvisor.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import LEASES, NODES

log = logging.getLogger(__name__)

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
RENEW_SECONDS: Final = 10.0
MAX_PODS: Final = 1000
HOST_IP: Final = "127.0.0.1"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_DEVICES: Final = {
    "devices.kubevirt.io/kvm": "/dev/kvm",
    "devices.kubevirt.io/tun": "/dev/net/tun",
    "devices.kubevirt.io/vhost-net": "/dev/vhost-net",
}


def capacity() -> Json:
    """The host's resources. Every simulated node reports all of them: they are one host's, and not divided."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    disk = os.statvfs("/")
    amounts: Json = {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{pages * size // 1024}Ki",
        "pods": str(MAX_PODS),
        "ephemeral-storage": f"{disk.f_blocks * disk.f_frsize // 1024}Ki",
    }
    for resource, path in _DEVICES.items():
        if Path(path).exists():
            amounts[resource] = str(MAX_PODS)
    return amounts


def labels(node: str) -> dict[str, str]:
    """The well-known labels."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return {
        "kubernetes.io/hostname": node,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "kubevirt.io/schedulable": "true",
    }


def status(old: Json, now: str) -> Json:
    """The node's status; times of conditions that did not change stay."""
    amounts = capacity()
    known = {str(c.get("type")): c for c in list_at(old, "conditions")}
    conditions: list[Json] = []
    for type_, holds, reason, message in (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "the node has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "the node has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "the node has sufficient process ids available"),
        ("Ready", "True", "KubeletReady", "the pod runner is posting ready status"),
    ):
        before = known.get(type_)
        if before is not None and before.get("status") == holds:
            conditions.append(before)
            continue
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        conditions.append({"type": type_, "status": holds, "reason": reason, "message": message, **times})
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": HOST_IP}],
        "nodeInfo": {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "bootID": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "containerRuntimeVersion": f"anyvisor://{__version__}",
            "kernelVersion": platform.release(),
            "kubeProxyVersion": "",
            "kubeletVersion": f"v1.37.0+anyvisor-{__version__}",
            "machineID": "",
            "operatingSystem": "linux",
            "osImage": _os_name(),
            "systemUUID": "",
        },
    }


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


class NodeKeeper:
    """Registers the node and keeps its lease."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node
        self._gone = asyncio.Event()

    async def run(self) -> None:
        """Register, then renew until cancelled."""
        async with Informer(self._client, NODES, fields=f"metadata.name={self._node}") as nodes:
            nodes.on_change(self._seen)
            while True:
                await self._register_surely()
                while not await self._gone_within(RENEW_SECONDS * random.uniform(0.9, 1.1)):  # noqa: S311 - spreads load
                    await self._renew_if_possible()

    def _seen(self, _old: CachedObject | None, new: CachedObject | None) -> None:
        if new is None:
            self._gone.set()

    async def _gone_within(self, seconds: float) -> bool:
        """Whether somebody deletes the node while this waits: it lives, so it comes back at once."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), seconds)
        return self._gone.is_set()

    async def _register_surely(self) -> None:
        while True:
            self._gone.clear()
            try:
                await self._register()
                break
            except ApiError as error:
                log.warning("node %s is not registered: %s", self._node, error)
                await asyncio.sleep(1.0)
        await self._renew_if_possible()

    async def _renew_if_possible(self) -> None:
        try:
            await self._renew()
        except ApiError as error:
            log.warning("the lease of node %s is not renewed: %s", self._node, error)

    async def _register(self) -> None:
        wanted: Json = {"metadata": {"name": self._node, "labels": labels(self._node)}}
        try:
            present = await self._client.create(NODES, wanted)
        except AlreadyExists:
            present = await self._client.patch(NODES, self._node, None, {"metadata": {"labels": labels(self._node)}})
        fresh = status(object_at(present, "status"), _now())
        if any(object_at(present, "status").get(key) != value for key, value in fresh.items()):
            await self._client.patch(NODES, self._node, None, {"status": fresh}, subresource="status")

    async def _renew(self) -> None:
        spec: Json = {
            "holderIdentity": self._node,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        try:
            await self._client.patch(LEASES, self._node, LEASE_NAMESPACE, {"spec": spec})
        except NotFound:
            lease: Json = {"metadata": {"name": self._node, "namespace": LEASE_NAMESPACE}, "spec": spec}
            try:
                await self._client.create(LEASES, lease, LEASE_NAMESPACE)
            except (AlreadyExists, Conflict):
                return


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

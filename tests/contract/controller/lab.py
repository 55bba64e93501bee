"""Controllers and scheduler over a real API server; a played node runs the pods and their guests."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from anyvisor.controller.service import Controllers
from anyvisor.embedded import identities
from anyvisor.embedded.apiserver.component_roles import AGENTS
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.scheduler.service import Scheduler
from anyvisor.kube.client import Client, EventType
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.resources import EVENTS, NODES, PODS, VMIS, VMS, Resource
from anyvisor.kube.transport import Request, Response, Transport

Json = dict[str, Any]
ADMIN = Identity("admin", ("system:masters",)).with_authenticated()
NODE = "node01"
AGENT = Identity(f"system:anyvisor:agent:{NODE}", (AGENTS,)).with_authenticated()
DEADLINE = 8.0


class Counting:
    """A transport that counts the writes of whoever uses it, by method and resource."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.writes: Counter[tuple[str, str]] = Counter()

    async def send(self, request: Request) -> Response:
        if request.method != "GET":
            kind = next((one.plural for one in (VMS, VMIS, PODS) if f"/{one.plural}" in request.path), "others")
            self.writes[request.method, kind] += 1
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


class Lab:
    """What a test does to the objects, and how it waits for what follows."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.client = Client(server.inprocess(ADMIN))
        self.agent = Client(server.inprocess(AGENT))
        self.counted = Counting(server.inprocess(identities.CONTROLLER))

    @asynccontextmanager
    async def controllers(self, **options: Any) -> AsyncGenerator[None]:
        """Controllers and scheduler at work."""
        acting = Client(self.counted)
        placing = Client(self.server.inprocess(identities.SCHEDULER))
        async with (
            EventRecorder(acting, "anyvisor-controller") as events,
            EventRecorder(placing, "default-scheduler") as placed,
            asyncio.TaskGroup() as group,
        ):
            tasks = [
                group.create_task(Controllers(acting, events, **options).run()),
                group.create_task(Scheduler(placing, placed).run()),
            ]
            yield
            for task in tasks:
                task.cancel()

    async def follow(
        self, resource: Resource, *, namespace: str = "default", labels: str = "", fields: str = ""
    ) -> AsyncGenerator[Json]:
        """The objects of a selection now, then each as it changes; one that went has only its metadata."""
        listed = await self.client.list(resource, namespace, labels=labels or None, fields=fields or None)
        for one in listed["items"]:
            yield one
        version = listed["metadata"]["resourceVersion"]
        async for event in self.client.watch(
            resource, namespace, resource_version=version, labels=labels or None, fields=fields or None
        ):
            if event.type is EventType.DELETED:
                yield {"metadata": event.object.json()["metadata"], "gone": True}
            elif event.type is not EventType.BOOKMARK:
                yield event.object.json()

    async def first(self, resource: Resource, fits: Callable[[Json], bool], **selectors: str) -> Json:
        """The first object that fits."""
        last: Json = {}
        try:
            async with asyncio.timeout(DEADLINE), aclosing(self.follow(resource, **selectors)) as followed:
                async for last in followed:
                    if fits(last):
                        return last
        except TimeoutError:
            pytest.fail(f"no {resource.plural} of {selectors} fitted; last: {last}")
        raise AssertionError("the watch ended")

    async def see(self, resource: Resource, name: str, fits: Callable[[Json], bool]) -> Json:
        """The object as soon as it fits."""
        return await self.first(resource, fits, fields=f"metadata.name={name}")

    async def gone(self, resource: Resource, name: str) -> None:
        """Wait until there is no such object."""
        if (await self.client.list(resource, "default", fields=f"metadata.name={name}"))["items"]:
            await self.see(resource, name, lambda obj: "gone" in obj)

    async def told(self, name: str, reason: str) -> Json:
        """The event of this reason about an object of this name."""
        return await self.first(
            EVENTS, lambda event: event.get("reason") == reason and event["involvedObject"]["name"] == name
        )

    async def node(self, **conditions: str) -> None:
        """A node that meets every plan."""
        made = await self.client.create(NODES, _node())
        made["status"] = {
            "conditions": [{"type": "Ready", "status": conditions.get("Ready", "True")}],
            "allocatable": _ROOM,
            "capacity": _ROOM,
        }
        await self.client.update(NODES, made, subresource="status")

    async def pod_of(self, vmi: str) -> Json:
        """The launcher pod that was placed for an instance."""
        found = await self.see(VMIS, vmi, lambda obj: "gone" not in obj)
        labels = f"kubevirt.io/created-by={found['metadata']['uid']}"
        return await self.first(PODS, lambda pod: bool(pod.get("spec", {}).get("nodeName")), labels=labels)

    async def run_pod(self, pod: Json, phase: str = "Running") -> None:
        """What the node's pod runner tells of a pod."""
        ready = phase == "Running"
        states: dict[str, Json] = {"Running": {"running": {}}, "Failed": {"terminated": {"exitCode": 1}}}
        status: Json = {
            "phase": phase,
            "podIP": "10.0.0.9",
            "podIPs": [{"ip": "10.0.0.9"}],
            "conditions": [
                {"type": "Ready", "status": str(ready)},
                {"type": "kubevirt.io/virtual-machine-unpaused", "status": "True"},
            ],
            "containerStatuses": [
                {
                    "name": one["name"],
                    "ready": ready,
                    "restartCount": 0,
                    "image": one["image"],
                    "imageID": "",
                    "state": states.get(phase, {"terminated": {"exitCode": 0}}),
                }
                for one in pod["spec"]["containers"]
            ],
        }
        await self.client.patch(PODS, pod["metadata"]["name"], "default", {"status": status}, subresource="status")

    async def end_pod(self, pod: Json) -> None:
        """What the pod runner does with a pod that was deleted and has stopped."""
        await self.client.delete(PODS, pod["metadata"]["name"], "default", grace=0)

    async def run_guest(self, name: str, phase: str = "Running") -> None:
        """What the node's agent tells of a guest."""
        vmi = await self.client.get(VMIS, name, "default")
        passed = [*vmi["status"]["phaseTransitionTimestamps"], {"phase": phase, "phaseTransitionTimestamp": _now()}]
        status = {"phase": phase, "phaseTransitionTimestamps": passed}
        await self.agent.patch(VMIS, name, "default", {"status": status})

    async def play_end(self, name: str, pod: Json, guest: str = "Succeeded") -> None:
        """The node ends a guest whose pod is being deleted."""
        await self.see(PODS, pod["metadata"]["name"], lambda seen: "deletionTimestamp" in seen["metadata"])
        await self.run_guest(name, guest)
        await self.run_pod(pod, "Succeeded")
        await self.end_pod(pod)

    async def started(self, name: str) -> Json:
        """Take an instance up to its running guest."""
        pod = await self.pod_of(name)
        await self.run_pod(pod)
        await self.see(VMIS, name, phase("Scheduled"))
        await self.run_guest(name)
        return pod


_ROOM = {
    "cpu": "8",
    "memory": "16Gi",
    "ephemeral-storage": "100Gi",
    "pods": "110",
    "devices.kubevirt.io/kvm": "1k",
    "devices.kubevirt.io/tun": "1k",
    "devices.kubevirt.io/vhost-net": "1k",
}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _node() -> Json:
    labels = {
        "kubevirt.io/schedulable": "true",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": NODE,
        "qemu.anyvisor.io/driver": "true",
        "machine-type.node.kubevirt.io/q35": "true",
        "machine-type.node.kubevirt.io/pc-q35-10.0": "true",
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}


def phase(wanted: str) -> Callable[[Json], bool]:
    """Fits an object in this phase."""
    return lambda obj: obj.get("status", {}).get("phase") == wanted


def vm(name: str = "a", strategy: str = "Always", **spec: Any) -> Json:
    """A small VM."""
    domain = {"memory": {"guest": "64Mi"}, "devices": {}, **spec.pop("domain", {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runStrategy": strategy, "template": {"spec": {"domain": domain, **spec}}},
    }

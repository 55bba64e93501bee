"""Nodes that run no containers: real agents over the fake driver, and a kubelet that tells what a kubelet would.

`python -m tests.cluster.simulation agents|kubelet CONFIG`: two processes for any number of nodes, so that what the
product costs can be told from what the play costs. A pod's process is a `sleep`; its pid is in a file of the pod's uid
below `pods`, which is where the agents find launchers.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from anyvisor.agent.driver import DriverAddress
from anyvisor.agent.launchers import Launcher, SharedDirectory
from anyvisor.agent.main import AgentConfig, run_agent
from anyvisor.agent.network import MachineNetwork
from anyvisor.agent.volumes.source import ClaimError, OpenedClaim, OpenedDisk
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.kit.server import DriverServer
from anyvisor.kube.client import Client, PatchType
from anyvisor.kube.config import load
from anyvisor.kube.errors import ApiError, Conflict, NotFound
from anyvisor.kube.http import HttpTransport
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import LEASES, NODES, PODS
from tests.cluster.installation import account_kubeconfig
from tests.cluster.kit.control_plane import ControlPlane

Json = dict[str, Any]
LABELS: Final = {"kubevirt.io/schedulable": "true", "anyvisor.io/agent": "true"}
CAPACITY: Final = {
    "cpu": "128",
    "memory": "512Gi",
    "ephemeral-storage": "500Gi",
    # As the agent's device plugins offer them.
    **{f"devices.kubevirt.io/{name}": "1k" for name in ("kvm", "tun", "vhost-net", "vhost-vsock")},
}
LEASE_NAMESPACE: Final = "kube-node-lease"
BEAT_SECONDS: Final = 10.0
END_SECONDS: Final = 5.0
"""How long an agent has to end a machine whose pod is told to end, before the pod's process is killed."""


class Config(msgspec.Struct, frozen=True):
    """What both processes are told."""

    place: str
    kubelet: str
    """The kubelet's kubeconfig."""
    nodes: dict[str, str]
    """Node -> its agent's kubeconfig."""
    pods: int
    """How many fit on a node."""


# -- started by tests -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class SimulatedNodes:
    """Some nodes on a control plane on which the product is installed."""

    plane: ControlPlane
    names: list[str]
    pods: int = 110
    """How many fit on a node."""
    config: Path = field(init=False)

    def up(self) -> None:
        """Make the nodes and start both processes; returns when every agent has told what its node can run."""
        place = self.plane.place / "simulation"
        place.mkdir(exist_ok=True)
        self.plane.apply(*(_node(name) for name in self.names))
        kubeconfigs = {name: str(account_kubeconfig(self.plane, "agent", name)) for name in self.names}
        self.config = place / "config.json"
        self.config.write_bytes(msgspec.json.encode(Config(str(place), str(self.plane.admin), kubeconfigs, self.pods)))
        self.start("kubelet")
        self.start("agents")
        self.plane.wait("agents", self.healthy)

    def start(self, part: str) -> None:
        """Start one of the processes."""
        command = [sys.executable, "-m", "tests.cluster.simulation", part, str(self.config)]
        self.plane.processes.start(part, command)

    def healthy(self) -> bool:
        """Whether a driver is healthy on every node."""
        found: list[Json] = self.plane.get("hypervisornodes.anyvisor.io").get("items", [])
        healthy = {
            one["metadata"]["name"]
            for one in found
            if any(driver.get("healthy") for driver in one.get("status", {}).get("drivers", []))
        }
        return healthy >= set(self.names)


def _node(name: str) -> Json:
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        "machine-type.node.kubevirt.io/q35": "true",
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


# -- agents ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sleepers:
    """Launchers by the files that the kubelet writes; implements `agent.launchers.LauncherSource`."""

    pods: Path
    stop_hooks: bool = False

    async def find(self, pod_uid: str) -> Launcher | None:
        try:
            pid = int((self.pods / pod_uid / "pid").read_text())
            pidfd = os.pidfd_open(pid)
        except (OSError, ValueError):
            return None
        return Launcher(pid, pidfd, os.open(self.pods / pod_uid, os.O_RDONLY | os.O_DIRECTORY), 0, 0)

    async def network_namespace(self, pod_uid: str) -> int | None:
        return None

    async def mount(self, pod_uid: str, path: str) -> int:
        raise FileNotFoundError(path)

    async def share(self, pod_uid: str, directory: int, *, read_only: bool) -> SharedDirectory:
        raise PermissionError(pod_uid)

    async def resize(self, pod_uid: str, more: int) -> None: ...

    def hold(self, pod_uid: str) -> None: ...

    def release(self, pod_uid: str) -> None: ...

    def log_path(self, pod_uid: str) -> str:
        return ""


class NoVolumes:
    """These machines have no images and no claims."""

    async def open(self, namespace: str, claim: str, *, read_only: bool) -> OpenedClaim:
        raise ClaimError("FailedPvcNotFound", f"no claim {namespace}/{claim} ({read_only=})")

    async def open_state(self, namespace: str, claim: str, file: str) -> int:
        raise ClaimError("FailedPvcNotFound", f"no claim {namespace}/{claim} for {file}")

    async def open_directory(self, namespace: str, claim: str) -> int:
        raise ClaimError("FailedPvcNotFound", f"no claim {namespace}/{claim}")

    def open_disk(self, reference: str, path: str) -> OpenedDisk:
        raise FileNotFoundError(reference)

    def digest(self, reference: str) -> str:
        raise FileNotFoundError(reference)

    def open_file(self, reference: str, path: str) -> int:
        raise FileNotFoundError(reference)


async def _no_network(vmi: Json, *, pod: Json, netns: int | None, adopted: bool, only: str = "") -> MachineNetwork:
    """Told of as the real one is: controller and agent both know parts of an interface's status."""
    del netns, adopted, only
    told: Json = {"infoSource": "domain", "queueCount": 1, "linkState": "up"}
    address = pod.get("status", {}).get("podIP")
    if address:
        told |= {"ipAddress": address, "ipAddresses": [address]}
    interfaces: list[Json] = vmi["spec"]["domain"]["devices"].get("interfaces", [])
    return MachineNetwork(status=[{"name": one["name"], "mac": "02:00:00:00:00:01", **told} for one in interfaces])


async def _agents(config: Config) -> None:
    async with asyncio.TaskGroup() as group:
        for node, kubeconfig in config.nodes.items():
            group.create_task(_agent(Path(config.place), node, Path(kubeconfig)), name=node)


async def _agent(place: Path, node: str, kubeconfig: Path) -> None:
    own = place / node
    own.mkdir(exist_ok=True)
    sockets = own / "hri.sock", own / "fd.sock"
    for path in sockets:
        path.unlink(missing_ok=True)
    driver = FakeDriver()
    transport = HttpTransport(load(kubeconfig))
    try:
        async with DriverServer(driver, *sockets):
            await run_agent(
                AgentConfig(
                    node=node,
                    client=Client(transport),
                    state_dir=own / "state",
                    socket=own / "agent.sock",
                    drivers=[DriverAddress(driver.manifest["driver"], str(sockets[0]), str(sockets[1]))],
                    launchers=Sleepers(place / "pods"),
                    images=NoVolumes(),
                    claims=NoVolumes(),
                    attach_network=_no_network,
                    labels=LABELS,
                )
            )
    finally:
        await transport.close()


# -- kubelet --------------------------------------------------------------------------------------------------


class Kubelet:
    """Tells of pods what a kubelet tells: that they are being made, run, and have ended."""

    def __init__(self, client: Client, config: Config, pods: Informer) -> None:
        self._client = client
        self._nodes = list(config.nodes)
        self._capacity = {**CAPACITY, "pods": str(config.pods)}
        self._place = Path(config.place) / "pods"
        self._place.mkdir(exist_ok=True)
        self._pods = pods
        self._queue = WorkQueue[tuple[str, str]]()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._told: set[str] = set()

    async def run(self) -> None:
        """Play until cancelled."""
        self._pods.on_change(self._changed)
        async with asyncio.TaskGroup() as group:
            for node in self._nodes:
                group.create_task(self._beat(node), name=f"heart of {node}")
            group.create_task(self._queue.run(self._sync, 16), name="pods")

    def _changed(self, old: CachedObject | None, new: CachedObject | None) -> None:
        if new is None and old is not None:
            self._end(old.meta.uid)
        elif new is not None:
            self._queue.add((new.meta.namespace, new.meta.name))

    async def _beat(self, node: str) -> None:
        status: Json = {
            "capacity": self._capacity,
            "allocatable": self._capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _now()}],
            "nodeInfo": {"containerRuntimeVersion": "simulated://1", "kernelVersion": os.uname().release},
        }
        await self._client.patch(NODES, node, None, {"status": status}, PatchType.MERGE, subresource="status")
        lease: Json = {
            "metadata": {"name": node, "namespace": LEASE_NAMESPACE},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": 40},
        }
        while True:
            lease["spec"]["renewTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            with suppress(ApiError):
                await self._client.apply(LEASES, lease, field_manager="kubelet")
            await asyncio.sleep(BEAT_SECONDS)

    async def _sync(self, key: tuple[str, str]) -> float | None:
        found = self._pods.get(*key)
        pod = found.json() if found is not None else {}
        if not pod or pod["spec"].get("nodeName") not in self._nodes:
            return None
        uid: str = pod["metadata"]["uid"]
        try:
            if pod["metadata"].get("deletionTimestamp"):
                return await self._terminate(pod)
            if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                return None
            process = self._processes.get(uid)
            if process is None:
                await self._tell(pod, _status(pod, running=False))
                self._processes[uid] = self._start(uid)
                await self._tell(pod, _status(pod, running=True))
            elif process.poll() is not None:
                await self._tell(pod, _ended(pod))
            elif not _is_ready(pod) and _gates_open(pod):
                await self._tell(pod, _status(pod, running=True))
        except (NotFound, Conflict):
            return None
        return 1.0

    def _start(self, uid: str) -> subprocess.Popen[bytes]:
        directory = self._place / uid
        directory.mkdir(exist_ok=True)
        process = subprocess.Popen(["sleep", "infinity"], start_new_session=True)
        (directory / "pid").write_text(str(process.pid))
        return process

    async def _terminate(self, pod: Json) -> float | None:
        """Give the agent its time, then end the process and take the object away."""
        metadata = pod["metadata"]
        process = self._processes.get(metadata["uid"])
        asked = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp() - int(
            metadata.get("deletionGracePeriodSeconds") or 0
        )
        running = process is not None and process.poll() is None
        if running and datetime.now(UTC).timestamp() < asked + END_SECONDS:
            return 0.25
        self._end(metadata["uid"])
        await self._client.delete(PODS, metadata["name"], metadata["namespace"], grace=0, uid=metadata["uid"])
        return None

    async def _tell(self, pod: Json, status: Json) -> None:
        metadata = pod["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self._client.patch(
            PODS, metadata["name"], metadata["namespace"], patch, PatchType.STRATEGIC, subresource="status"
        )

    def _end(self, uid: str) -> None:
        process = self._processes.pop(uid, None)
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End all pods' processes."""
        for uid in list(self._processes):
            self._end(uid)


def _status(pod: Json, *, running: bool) -> Json:
    now = _now()
    ready = running and _gates_open(pod)
    said = {"Initialized": True, "PodReadyToStartContainers": running, "ContainersReady": running, "Ready": ready}
    state: Json = {"running": {"startedAt": now}} if running else {"waiting": {"reason": "ContainerCreating"}}
    return {
        "phase": "Running" if running else "Pending",
        "hostIP": "10.0.0.1",
        "podIP": "10.0.0.2" if running else None,
        "podIPs": [{"ip": "10.0.0.2"}] if running else None,
        "startTime": now,
        "conditions": [{"type": kind, "status": str(holds), "lastTransitionTime": now} for kind, holds in said.items()],
        "containerStatuses": [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "containerID": f"simulated://{pod['metadata']['uid']}" if running else "",
                "ready": running,
                "restartCount": 0,
                "started": running,
                "state": state,
            }
            for one in pod["spec"]["containers"]
        ],
    }


def _ended(pod: Json) -> Json:
    now = _now()
    ended: Json = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    status: Json = _status(pod, running=True) | {"phase": "Succeeded"}
    containers: list[Json] = status["containerStatuses"]
    for one in containers:
        one.update(ready=False, started=False, state={"terminated": ended})
    status["conditions"] = [
        {"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
        for kind in ("ContainersReady", "Ready")
    ]
    return status


def _gates_open(pod: Json) -> bool:
    said = {one["type"]: one["status"] for one in pod.get("status", {}).get("conditions", [])}
    return all(said.get(gate["conditionType"]) == "True" for gate in pod["spec"].get("readinessGates", []))


def _is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def _kubelet(config: Config) -> None:
    transport = HttpTransport(load(Path(config.kubelet)))
    client = Client(transport)
    try:
        async with Informer(client, PODS, fields="spec.nodeName!=") as pods:
            kubelet = Kubelet(client, config, pods)
            try:
                await kubelet.run()
            finally:
                kubelet.close()
    finally:
        await transport.close()


def main(arguments: list[str]) -> None:
    """Be one of the processes until SIGTERM."""
    part, path = arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    config = msgspec.json.decode(Path(path).read_bytes(), type=Config)
    work = {"agents": _agents, "kubelet": _kubelet}[part](config)

    async def until_told() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await work

    with suppress(asyncio.CancelledError):
        uvloop.run(until_told())


if __name__ == "__main__":
    main(sys.argv[1:])

"""The processes of this node's pods, found without trusting a path: by the container's id and the pod's uid.

The kubelet writes both into the pod's status, and the container runtime into the names of control groups, which no
container can choose. What lies in a container's files is opened through `/proc/PID/root`, following no link.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from anyvisor.agent import linux
from anyvisor.agent.processes import has_ended
from anyvisor.api.meta import Json, list_at, text_at
from anyvisor.kube.client import Client
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import PODS

BY_UID: Final = "uid"
_CONTAINER: Final = re.compile(r"[0-9a-f]{64}")
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class ContainerProcess:
    """The first process of a running container; the pidfd belongs to the holder."""

    pid: int
    pidfd: int

    def open_directory(self, path: str) -> int:
        """Open a directory as the container has it. Raises OSError, also for a link on the way."""
        root = self._root()
        try:
            directory = linux.openat2(root, path.strip("/") or ".", _OPEN_DIRECTORY)
        finally:
            os.close(root)
        return self._while_running(directory)

    def open_inode(self, path: str) -> int:
        """Open an inode as such (O_PATH), to look at it and connect to it."""
        root = self._root()
        try:
            inode = linux.openat2(root, path.strip("/"))
        finally:
            os.close(root)
        return self._while_running(inode)

    def open_namespace(self, kind: str) -> int:
        """Open one of its namespaces."""
        return self._while_running(os.open(f"/proc/{self.pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC))

    def owner(self) -> tuple[int, int]:
        """Its effective user and group, on the host."""
        found: dict[str, int] = {}
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, values = line.partition(":")
            if name in ("Uid", "Gid"):
                found[name] = int(values.split()[1])
        return found["Uid"], found["Gid"]

    def close(self) -> None:
        """Close the pidfd; the process is not touched."""
        os.close(self.pidfd)

    def _root(self) -> int:
        return os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _while_running(self, descriptor: int) -> int:
        """What was opened by pid is the process's own only if it still runs: else the pid may be another's."""
        if has_ended(self.pidfd):
            os.close(descriptor)
            raise ProcessLookupError(f"process {self.pid} ended")
        return descriptor


class NodePods:
    """The pods of one node. Use as `async with NodePods(client, node) as pods:`."""

    def __init__(self, client: Client, node: str, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self.cache = Informer(
            client, PODS, fields=f"spec.nodeName={node}", indexes={BY_UID: lambda found: (found.meta.uid,)}
        )

    async def __aenter__(self) -> Self:
        await self.cache.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cache.__aexit__(kind, error, trace)

    def get(self, pod_uid: str) -> CachedObject | None:
        """A pod of this node."""
        return next(iter(self.cache.index(BY_UID, pod_uid)), None)

    async def process(self, pod_uid: str, container: str) -> ContainerProcess | None:
        """The first process of a running container, the caller's to close; None when there is none (yet)."""
        pod = self.get(pod_uid)
        container_id = running_container(pod.json(), container) if pod is not None else ""
        if not container_id:
            return None
        return await asyncio.to_thread(self._find, pod_uid, container_id)

    def _find(self, pod_uid: str, container_id: str) -> ContainerProcess | None:
        for pid in self._pids():
            if not self._belongs(pid, pod_uid, container_id):
                continue
            with contextlib.suppress(OSError):
                pidfd = os.pidfd_open(pid)
                # Again, now that the pid cannot pass to another process unnoticed.
                if self._belongs(pid, pod_uid, container_id) and not has_ended(pidfd):
                    return ContainerProcess(pid, pidfd)
                os.close(pidfd)
        return None

    def _pids(self) -> Iterator[int]:
        for entry in self._proc.iterdir():
            if entry.name.isdecimal():
                yield int(entry.name)

    def _belongs(self, pid: int, pod_uid: str, container_id: str) -> bool:
        """Whether it is the container's first process: pid 1 of the pod, or of the container."""
        place = self._proc / str(pid)
        try:
            groups = (place / "cgroup").read_text()
            if not in_container(groups, pod_uid, container_id):
                return False
            status = (place / "status").read_text()
        except OSError:
            return False
        return is_first(status)


def in_container(cgroup: str, pod_uid: str, container_id: str) -> bool:
    """Whether /proc/PID/cgroup names the container of the pod, in the forms of both cgroup drivers."""
    names = (f"pod{pod_uid}", f"pod{pod_uid.replace('-', '_')}")
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        steps = [step.removesuffix(".slice").removesuffix(".scope") for step in path.split("/")]
        if not any(step.endswith(names) for step in steps):
            continue
        if any(step == container_id or step.endswith(f"-{container_id}") for step in steps):
            return True
    return False


def is_first(status: str) -> bool:
    """Whether /proc/PID/status is that of pid 1 of its namespace."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return line.split()[-1] == "1"
    return False


def running_container(pod: Json, name: str) -> str:
    """The id of a container that runs, without its runtime's prefix; empty when it does not."""
    for one in list_at(pod, "status", "containerStatuses"):
        if one.get("name") == name and "running" in (one.get("state") or {}):
            found = text_at(one, "containerID").rpartition("//")[2]
            return found if _CONTAINER.fullmatch(found) else ""
    return ""

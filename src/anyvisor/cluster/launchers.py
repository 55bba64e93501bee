"""Launchers of this node, in pods that the kubelet runs; implements `agent.launchers.LauncherSource`."""

import errno
from dataclasses import dataclass
from typing import Final

from anyvisor.agent import processes
from anyvisor.agent.launchers import Launcher, SharedDirectory
from anyvisor.cluster.pods import NodePods

COMPUTE: Final = "compute"
LAUNCHER_DIRECTORY: Final = "/run/l"


@dataclass(frozen=True, slots=True)
class PodLaunchers:
    """Finds launchers by their pods' processes."""

    pods: NodePods

    @property
    def stop_hooks(self) -> bool:
        """The kubelet runs them."""
        return True

    async def find(self, pod_uid: str) -> Launcher | None:
        """The running launcher of the pod, the caller's to close; None when there is none (yet)."""
        process = await self.pods.process(pod_uid, COMPUTE)
        if process is None:
            return None
        try:
            directory = process.open_directory(LAUNCHER_DIRECTORY)
            user, group = process.owner()
        except (OSError, KeyError):
            process.close()
            return None
        return Launcher(process.pid, process.pidfd, directory, user, group)

    async def network_namespace(self, pod_uid: str) -> int | None:
        """A descriptor of the pod's network namespace, the caller's to close."""
        process = await self.pods.process(pod_uid, COMPUTE)
        if process is None:
            return None
        try:
            return process.open_namespace("net")
        except OSError:
            return None
        finally:
            process.close()

    async def mount(self, pod_uid: str, path: str) -> int:
        """What the pod has mounted at `path`: a directory, the caller's to close. Raises OSError."""
        process = await self.pods.process(pod_uid, COMPUTE)
        if process is None:
            raise FileNotFoundError(f"the launcher pod does not run, so nothing is mounted at {path}")
        try:
            return process.open_directory(path)
        finally:
            process.close()

    async def share(self, pod_uid: str, directory: int, *, read_only: bool) -> SharedDirectory:
        """Not served: the agent of a cluster has no right to make mounts and user namespaces for others."""
        del pod_uid, directory, read_only
        raise OSError(errno.EOPNOTSUPP, "on a cluster no directories are shared with guests")

    async def resize(self, pod_uid: str, more: int) -> None:
        """Nothing to do for a container without a memory limit; another's is not changed."""
        process = await self.pods.process(pod_uid, COMPUTE)
        if process is None:
            raise FileNotFoundError("the launcher pod does not run")
        try:
            limited = processes.memory_is_limited(process.pid)
        finally:
            process.close()
        if more > 0 and limited:
            raise OSError(errno.EOPNOTSUPP, "its container has a memory limit, which is fixed while it runs")

    def hold(self, pod_uid: str) -> None:
        """Nothing to do: the kubelet reports a pod's end without asking, and the controller waits for the agent."""

    def release(self, pod_uid: str) -> None:
        """See `hold`."""

    def log_path(self, pod_uid: str) -> str:
        """Unknown: `kubectl logs` asks the kubelet."""
        del pod_uid
        return ""

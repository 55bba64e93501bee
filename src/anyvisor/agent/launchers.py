"""Where launchers are found: from the embedded pod runner's books, or on a cluster by cgroup and /proc."""

import os
from dataclasses import dataclass
from typing import Protocol


class LauncherError(Exception):
    """A launcher cannot be reached or did not do its part; the message is a sentence for the VMI."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher that runs: the shim before the hand-over, the VMM after it. Both descriptors belong to the holder."""

    pid: int
    pidfd: int
    directory: int
    """The launcher's private directory, opened by us. What lies in it is the launcher's: hostile."""
    uid: int
    gid: int
    log: str = ""
    """Where its standard output and error go, for a person; empty when nobody can tell."""

    def close(self) -> None:
        """Close both descriptors; the process is not touched."""
        os.close(self.pidfd)
        os.close(self.directory)


@dataclass(frozen=True, slots=True)
class SharedDirectory:
    """A directory for the launcher's user, and a user namespace of that user's. Both belong to the holder."""

    directory: int
    namespace: int


class LauncherSource(Protocol):
    """Finds the launcher of a pod."""

    @property
    def stop_hooks(self) -> bool:
        """Whether a pod that is told to end runs its stop hook as a process beside the VMM."""
        ...

    async def find(self, pod_uid: str) -> Launcher | None:
        """The running launcher of the pod, the caller's to close; None when there is none (yet)."""
        ...

    async def network_namespace(self, pod_uid: str) -> int | None:
        """A descriptor of the pod's network namespace, the caller's to close; None when it has none of its own."""
        ...

    async def mount(self, pod_uid: str, path: str) -> int:
        """What the pod has mounted at `path`: a directory, the caller's to close.

        Raises:
            OSError: the pod has no such mount (FileNotFoundError), or it cannot be opened.
        """
        ...

    async def share(self, pod_uid: str, directory: int, *, read_only: bool) -> SharedDirectory:
        """The directory as the pod's user may use it; `directory` stays the caller's.

        Raises:
            OSError: it cannot be given to that user.
        """
        ...

    async def resize(self, pod_uid: str, more: int) -> None:
        """Let the pod have so many bytes of memory more than it was planned with.

        Raises:
            OSError: its limit cannot be changed.
        """
        ...

    def hold(self, pod_uid: str) -> None:
        """The agent will say on the VMI how this pod's machine ended, before the pod's own end is reported.

        Else who sees the pod's end first would take the VMI for failed.
        """
        ...

    def release(self, pod_uid: str) -> None:
        """The agent has said it, or never will."""
        ...

    def log_path(self, pod_uid: str) -> str:
        """Where the pod's standard output and error are; empty when nobody can tell (any more)."""
        ...

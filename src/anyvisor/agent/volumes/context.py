"""What opening a machine's volumes needs besides its VMI."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from anyvisor.agent.launchers import SharedDirectory
from anyvisor.agent.volumes.source import ClaimSource, ImageSource


class Share(Protocol):
    """Gives a directory to the launcher's user; see `agent.launchers.LauncherSource.share`."""

    def __call__(self, directory: int, *, read_only: bool) -> Awaitable[SharedDirectory]:
        """Descriptors of their own, the caller's to close; raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class VolumeContext:
    """What opening volumes needs besides the VMI.

    `directory` is a descriptor of the machine's own private directory, where overlays and empty disks are kept.
    `mount` opens what the launcher pod has mounted at a path: a directory, the caller's to close; raises OSError.
    """

    images: ImageSource
    claims: ClaimSource
    directory: int
    mount: Callable[[str], Awaitable[int]]
    share: Share

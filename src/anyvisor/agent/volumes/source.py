"""Where images come from: the embedded image store, or image volumes of a pod."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class OpenedDisk:
    """An image's disk, opened read-only. `descriptor` is the caller's to close; `format` is `raw` or `qcow2`."""

    descriptor: int
    format: str
    virtual_bytes: int


class ImageSource(Protocol):
    """Gives descriptors of files in images, never paths. All raise `qcow2.ImageError`."""

    def open_disk(self, reference: str, path: str) -> OpenedDisk:
        """The image's disk at `path`, or its only one when `path` is empty."""
        ...

    def digest(self, reference: str) -> str:
        """What the reference stands for: the registry's digest."""
        ...

    def open_file(self, reference: str, path: str) -> int:
        """The image's file at `path`, opened read-only."""
        ...


@dataclass(frozen=True, slots=True)
class OpenedClaim:
    """A claim's disk, opened. `descriptor` is the caller's to close."""

    descriptor: int
    virtual_bytes: int
    block_device: bool = False


class ClaimError(Exception):
    """A claim's disk cannot be opened; `reason` is a CamelCase word for conditions and events."""

    def __init__(self, reason: str, message: str, *, retry: bool = True) -> None:
        super().__init__(message)
        self.reason, self.retry = reason, retry


class ClaimSource(Protocol):
    """Gives the disks of PersistentVolumeClaims."""

    async def open(self, namespace: str, claim: str, *, read_only: bool) -> OpenedClaim:
        """The claim's disk. Raises ClaimError."""
        ...

    async def open_state(self, namespace: str, claim: str, file: str) -> int:
        """A file of the claim for writing, empty at first; the descriptor is the caller's. Raises ClaimError."""
        ...

    async def open_directory(self, namespace: str, claim: str) -> int:
        """The claim's own directory, to be shared with a guest; the descriptor is the caller's. Raises ClaimError."""
        ...

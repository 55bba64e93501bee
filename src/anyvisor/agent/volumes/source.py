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
    """Gives descriptors of files in images, never paths. Both raise `qcow2.ImageError`."""

    def open_disk(self, reference: str, path: str) -> OpenedDisk:
        """The image's disk at `path`, or its only one when `path` is empty."""
        ...

    def open_file(self, reference: str, path: str) -> int:
        """The image's file at `path`, opened read-only."""
        ...

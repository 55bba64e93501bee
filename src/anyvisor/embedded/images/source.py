"""The image store as the agent's source of images."""

from dataclasses import dataclass

from anyvisor.agent.volumes.source import OpenedDisk
from anyvisor.embedded.images.store import ImageStore


@dataclass(frozen=True, slots=True)
class StoreSource:
    """Descriptors out of an `ImageStore`; implements `agent.volumes.source.ImageSource`."""

    store: ImageStore

    def open_disk(self, reference: str, path: str) -> OpenedDisk:
        """The image's disk at `path`, or its only one."""
        file = self.store.get(reference).disk(path)
        return OpenedDisk(self.store.open(file), file.format, file.virtual_bytes)

    def digest(self, reference: str) -> str:
        """What the reference stands for here."""
        return self.store.get(reference).digest

    def open_file(self, reference: str, path: str) -> int:
        """The image's file at `path`."""
        return self.store.open(self.store.get(reference).file(path))

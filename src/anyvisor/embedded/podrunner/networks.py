"""What the pod runner needs of a pod network."""

from typing import Protocol


class PodNetworks(Protocol):
    """A network namespace per pod."""

    async def create(self, pod_uid: str) -> str:
        """Make it, or find it again; the pod's address."""
        ...

    async def namespace(self, pod_uid: str) -> int | None:
        """A descriptor of it, the caller's to close; None when there is none."""
        ...

    async def destroy(self, pod_uid: str) -> None:
        """Remove it; nothing when there is none."""
        ...

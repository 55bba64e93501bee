"""Bring an image here as its pull policy says.

https://kubernetes.io/docs/concepts/containers/images/#image-pull-policy
"""

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.images.reference import normalize
from anyvisor.embedded.images.registry import CONFIGURATION, Progress, PullError, Registry, Resolved, Session
from anyvisor.embedded.images.settings import read_cap
from anyvisor.embedded.images.store import FROM_FILE, Image, ImageStore
from anyvisor.embedded.instance import Instance

ALWAYS: Final = "Always"
NEVER: Final = "Never"
IF_NOT_PRESENT: Final = "IfNotPresent"
CONCURRENT_PULLS: Final = 2


class NeverPullError(Exception):
    """The image is not here, and its policy forbids fetching it."""


@dataclass(frozen=True, slots=True)
class Ensured:
    """An image that is here; `seconds` is None when it was here already."""

    image: Image
    seconds: float | None = None


def _no_progress(_here: int, _total: int) -> None:
    return


@dataclass(slots=True)
class Puller:
    """One node's pulls: few at a time, each image once."""

    store: ImageStore
    registry: Registry
    cap: Callable[[], int]
    """How many bytes the store may have now."""
    _names: dict[str, asyncio.Lock] = field(default_factory=dict[str, asyncio.Lock])
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_PULLS))

    def suffices(self, reference: str, policy: str) -> bool:
        """Whether the image is here and may be used without asking a registry; raises ImageError for a bad name."""
        local = self.store.find(reference)
        return local is not None and _suffices(local, policy)

    async def ensure(
        self, reference: str, policy: str, credentials: bytes = b"", progress: Progress = _no_progress
    ) -> Ensured:
        """The image, fetched if the policy says so.

        An image that a person imported is no registry's: it is taken as it is, whatever the policy.

        Raises:
            ImageError: the name is none, or what came is no image for a machine.
            NeverPullError: it may not be fetched.
            PullError: it could not be fetched.
        """
        name = normalize(reference)
        async with self._names.setdefault(name, asyncio.Lock()):
            local = self.store.find(name)
            if local is not None and _suffices(local, policy):
                return Ensured(local)
            if policy == NEVER:
                raise NeverPullError(f"image {reference} is not here, and its pull policy is Never")
            async with self._slots:
                return await self._pull(name, local, credentials, progress)

    async def _pull(self, name: str, local: Image | None, credentials: bytes, progress: Progress) -> Ensured:
        begun = time.monotonic()
        async with self.registry.session(credentials) as session:
            resolved = await session.resolve(name)
            if local is not None and local.digest == resolved.digest:
                return Ensured(local)
            image = await self._fetch(session, name, resolved, progress)
        await asyncio.to_thread(self.store.collect, self.cap(), name)
        return Ensured(image, time.monotonic() - begun)

    async def _fetch(self, session: Session, name: str, resolved: Resolved, progress: Progress) -> Image:
        await asyncio.to_thread(self.store.collect, max(self.cap() - resolved.bytes, 0), name)
        layout = await session.copy(name, resolved, progress)
        try:
            return await asyncio.to_thread(self.store.import_file, layout, name, pulled_digest=resolved.digest)
        except OSError as error:
            raise PullError(f"its files cannot be stored: {error.strerror or error}") from error


def _suffices(image: Image, policy: str) -> bool:
    return policy != ALWAYS or image.origin == FROM_FILE or "@" in image.reference


def default_policy(reference: str) -> str:
    """The pull policy of whoever states none: that of its tag."""
    try:
        return ALWAYS if normalize(reference).endswith(":latest") else IF_NOT_PRESENT
    except ImageError:
        return IF_NOT_PRESENT


def puller(instance: Instance, store: ImageStore, owner: str) -> Puller:
    """The pulls of `owner`, a node or a command; what its ended ones left is removed."""
    place = instance.data_dir / "pulls" / owner
    shutil.rmtree(place, ignore_errors=True)
    registry = Registry(place, instance.users.images, instance.data_dir / CONFIGURATION)
    return Puller(store, registry, lambda: read_cap(instance.image_dir))

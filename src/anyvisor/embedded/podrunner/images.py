"""The images of pods: fetched before their launchers start, with a kubelet's reasons and events.

https://kubernetes.io/docs/concepts/containers/images/
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.api.meta import Json, list_at, name, namespace, text_at, uid
from anyvisor.embedded.images.credentials import CredentialsError, merged
from anyvisor.embedded.images.pull import Ensured, NeverPullError, Puller, default_policy
from anyvisor.embedded.images.registry import PullError
from anyvisor.kube.backoff import Backoff, BackoffPolicy
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError
from anyvisor.kube.events import EventKind, EventRecorder, Reference
from anyvisor.kube.resources import PODS, SECRETS

log = logging.getLogger(__name__)

POLICY: Final = BackoffPolicy(base=10.0, cap=300.0)
"""As the kubelet's."""
FAILED_SECONDS: Final = 2.0
"""How long a pod shows the failure itself, before it shows that the next try waits."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An image that a pod names."""

    reference: str
    policy: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a pod's images are not here yet; `again`: after how many seconds to look, None: when news comes."""

    reason: str
    message: str
    again: float | None = None


@dataclass(slots=True)
class _State:
    task: asyncio.Task[None] | None = None
    ready: bool = False
    failure: Waiting | None = None
    failed_at: float = 0.0
    not_before: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(POLICY))
    backs_off: bool = False
    pulling: str = ""


class PodImages:
    """Images of one node's pods."""

    def __init__(self, puller: Puller, client: Client, events: EventRecorder, node: str) -> None:
        self._puller, self._client, self._events, self._node = puller, client, events, node
        self._states: dict[str, _State] = {}

    async def prepare(self, pod: Json, tasks: asyncio.TaskGroup, changed: Callable[[str], None]) -> Waiting | None:
        """None when all images of the pod are here and kept for it; else a pull runs or waits, and why.

        `changed(uid)` is called when there is news.
        """
        wanted = images(pod)
        if not wanted:
            return None
        state = self._states.setdefault(uid(pod), _State())
        if state.ready or await self._all_here(pod, wanted):
            state.ready = True
            return None
        if state.task is not None:
            return Waiting("ContainerCreating", f"pulling image {state.pulling or wanted[0].reference}")
        now = time.monotonic()
        if state.failure is not None and now < state.not_before:
            return self._failed(pod, state, now)
        task = tasks.create_task(self._pull_all(pod, wanted, state), name=f"images of {uid(pod)}")
        state.task = task
        task.add_done_callback(lambda _: changed(uid(pod)))
        return Waiting("ContainerCreating", f"pulling image {wanted[0].reference}")

    def forget(self, pod_uid: str) -> None:
        """The pod is gone, and needs its images no longer."""
        state = self._states.pop(pod_uid, None)
        if state is not None and state.task is not None:
            state.task.cancel()
        self._puller.store.done(pod_uid)

    def close(self) -> None:
        """End the pulls that run; those who need the images ask again."""
        for state in self._states.values():
            if state.task is not None:
                state.task.cancel()

    def keep_only(self, pod_uids: set[str]) -> None:
        """After a start: of all pods of this node, only these are left."""
        self._puller.store.keep_only(self._node, pod_uids)

    async def _all_here(self, pod: Json, wanted: list[Wanted]) -> bool:
        """The usual case, without a task: nothing needs a registry."""
        return await asyncio.to_thread(self._use, pod, wanted)

    def _use(self, pod: Json, wanted: list[Wanted]) -> bool:
        try:
            if all(self._puller.suffices(one.reference, one.policy) for one in wanted):
                self._keep(pod, wanted)
                return True
        except (ImageError, OSError) as error:
            log.info("pod %s/%s: %s", namespace(pod), name(pod), error)
        return False

    def _keep(self, pod: Json, wanted: list[Wanted]) -> None:
        title = f"{namespace(pod)}/{name(pod)}"
        self._puller.store.use(uid(pod), self._node, title, [one.reference for one in wanted])

    async def _pull_all(self, pod: Json, wanted: list[Wanted], state: _State) -> None:
        try:
            credentials = await self._credentials(pod)
            for one in wanted:
                state.pulling = one.reference
                await self._pull(pod, one, credentials)
            await asyncio.to_thread(self._keep, pod, wanted)
            state.ready, state.failure = True, None
            state.backoff.reset()
        except (ImageError, PullError, NeverPullError, OSError) as error:
            self._fail(pod, state, error)
        finally:
            state.task = None

    async def _pull(self, pod: Json, wanted: Wanted, credentials: bytes) -> None:
        if not await asyncio.to_thread(self._puller.suffices, wanted.reference, wanted.policy):
            self._event(pod, EventKind.NORMAL, "Pulling", f'Pulling image "{wanted.reference}"')
        done = await self._puller.ensure(wanted.reference, wanted.policy, credentials)
        self._event(pod, EventKind.NORMAL, "Pulled", pulled(wanted.reference, done))

    def _fail(self, pod: Json, state: _State, error: Exception) -> None:
        reason = _reason(error)
        reference = state.pulling
        message = f'Failed to pull image "{reference}": {error}'
        if reason != "ErrImageNeverPull":
            message += f"; a file of yours gets that name by `anyvisor image import FILE --name {reference}`"
        state.failure, state.backs_off = Waiting(reason, message), False
        state.failed_at = time.monotonic()
        state.not_before = state.failed_at + state.backoff.next()
        self._event(pod, EventKind.WARNING, "ErrImageNeverPull" if reason == "ErrImageNeverPull" else "Failed", message)
        self._event(pod, EventKind.WARNING, "Failed", f"Error: {reason}")

    def _failed(self, pod: Json, state: _State, now: float) -> Waiting:
        """First the failure, then that the next try waits; both are what clients look for."""
        assert state.failure is not None
        left = state.not_before - now
        shown = state.failed_at + FAILED_SECONDS - now
        if shown > 0 or state.failure.reason != "ErrImagePull":
            return Waiting(state.failure.reason, state.failure.message, min(left, shown) if shown > 0 else left)
        message = f'Back-off pulling image "{state.pulling}": {state.failure.message}'
        if not state.backs_off:
            state.backs_off = True
            self._event(pod, EventKind.NORMAL, "BackOff", f'Back-off pulling image "{state.pulling}"')
            self._event(pod, EventKind.WARNING, "Failed", "Error: ImagePullBackOff")
        return Waiting("ImagePullBackOff", message, left)

    async def _credentials(self, pod: Json) -> bytes:
        """Of the pod's pull secrets; one that cannot be used is told of, and the pull is tried without it."""
        found: list[Json] = []
        for named in list_at(pod, "spec", "imagePullSecrets"):
            try:
                secret = await self._client.get(SECRETS, str(named.get("name") or ""), namespace(pod))
                merged([secret])
                found.append(secret)
            except (ApiError, CredentialsError) as error:
                message = f"Unable to use image pull secret {named.get('name')!r}: {error}"
                self._event(pod, EventKind.WARNING, "FailedToRetrieveImagePullSecret", message)
        return merged(found)

    def _event(self, pod: Json, kind: EventKind, reason: str, message: str) -> None:
        about = Reference(PODS.api_version, PODS.kind, namespace(pod), name(pod), uid(pod))
        self._events.record(about, kind, reason, message)


def images(pod: Json) -> list[Wanted]:
    """The images that the pod's volumes name, each once, with their policy or that of their tag."""
    found: dict[str, Wanted] = {}
    for volume in list_at(pod, "spec", "volumes"):
        reference = text_at(volume, "image", "reference")
        if reference:
            policy = text_at(volume, "image", "pullPolicy") or default_policy(reference)
            found.setdefault(reference, Wanted(reference, policy))
    return list(found.values())


def pulled(reference: str, done: Ensured) -> str:
    """The sentence of an event, in the form of the kubelet's."""
    if done.seconds is None:
        return f'Container image "{reference}" already present on machine ({done.image.digest})'
    size = done.image.bytes
    took = f"{done.seconds:.3g}s"
    return f'Successfully pulled image "{reference}" in {took} ({done.image.digest}). Image size: {size} bytes.'


def _reason(error: Exception) -> str:
    if isinstance(error, NeverPullError):
        return "ErrImageNeverPull"
    if isinstance(error, ImageError) and "is no image name" in str(error):
        return "InvalidImageName"
    return "ErrImagePull"

"""The shell of the installation's controller."""

from datetime import UTC, datetime

from anyvisor.controller.installation import reconcile_installation
from anyvisor.controller.sources import Sources, get, key_of
from anyvisor.controller.writer import Writer
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.queue import WorkQueue
from anyvisor.kube.resources import KUBEVIRTS


class InstallationController:
    """Keeps the status of KubeVirt objects until cancelled."""

    def __init__(self, client: Client, events: EventRecorder, sources: Sources) -> None:
        self._client = client
        self._events = events
        self._sources = sources
        self._queue: WorkQueue[str] = WorkQueue()

    async def run(self) -> None:
        """Work on each installation when any of them changes."""
        self._sources.configurations.on_change(self._changed)
        await self._queue.run(self._reconcile)

    def _changed(self, _old: CachedObject | None, _new: CachedObject | None) -> None:
        for installation in self._sources.configurations.values():
            self._queue.add(key_of(installation))

    async def _reconcile(self, key: str) -> None:
        space, own = key.split("/", 1)
        found = get(self._sources.configurations, space, own)
        if found is None:
            return
        others = [one.json() for one in self._sources.configurations.values() if key_of(one) != key]
        outcome = reconcile_installation(found, others, datetime.now(UTC))
        await Writer(self._client, self._events, KUBEVIRTS, found).carry_out(outcome)

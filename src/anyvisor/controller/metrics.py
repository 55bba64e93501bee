"""What the controllers tell Prometheus: their queues, how long runs take to start, and all VMs."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

from anyvisor import __version__
from anyvisor.api.meta import Json, list_at, text_at
from anyvisor.controller import machine_metrics
from anyvisor.controller.sources import Sources
from anyvisor.kube.metrics import QueueMetrics
from anyvisor.kube.objects import CachedObject

_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


class ControllerMetrics:
    """Lives as long as the process; `follow` is called once the caches exist."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.queues = QueueMetrics(self.registry)
        labels = ("phase", "last")
        prefix = "kubevirt_vmi_phase_transition_time_"
        self._between = Histogram(
            f"{prefix}seconds", "Time from one phase to the next.", labels, buckets=_BUCKETS, registry=self.registry
        )
        self._created = Histogram(
            f"{prefix}from_creation_seconds",
            "Time from a run's creation to a phase.",
            ("phase",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._started = Histogram(
            "anyvisor_vmi_start_duration_seconds",
            "Time from the first sight of a run to its guest's start.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        info = Gauge("kubevirt_info", "Version.", ("kubevirt_version",), registry=self.registry)
        info.labels(f"anyvisor-{__version__}").set(1)
        ready = Gauge("kubevirt_virt_controller_ready_status", "1 while the controllers run.", registry=self.registry)
        leads = Gauge("kubevirt_virt_controller_leading_status", "1 while they act.", registry=self.registry)
        self._state = (ready, leads)
        self._sources: Sources | None = None
        self._seen: dict[str, float] = {}

    def follow(self, sources: Sources, now: Callable[[], float] = time.monotonic) -> None:
        """Observe runs from now on."""
        self._sources = sources
        for gauge in self._state:
            gauge.set(1)

        def changed(old: CachedObject | None, new: CachedObject | None) -> None:
            self._changed(old, new, now())

        sources.vmis.on_change(changed)

    def _changed(self, old: CachedObject | None, new: CachedObject | None, now: float) -> None:
        if new is None:
            if old is not None:
                self._seen.pop(old.meta.uid, None)
            return
        vmi = new.json()
        phase = text_at(vmi, "status", "phase")
        before = text_at(old.json(), "status", "phase") if old is not None else ""
        if old is None and not phase:
            self._seen[new.meta.uid] = now
        if old is None or phase == before or not phase:
            return
        self._observe(vmi, phase, before)
        if phase == "Running" and (seen := self._seen.pop(new.meta.uid, None)) is not None:
            self._started.observe(now - seen)

    def _observe(self, vmi: Json, phase: str, before: str) -> None:
        """By the times that stand on the object, which have the resolution of a second."""
        times = {
            str(each.get("phase")): _time(each.get("phaseTransitionTimestamp"))
            for each in list_at(vmi, "status", "phaseTransitionTimestamps")
        }
        reached = times.get(phase) or datetime.now(UTC)
        created = _time(text_at(vmi, "metadata", "creationTimestamp"))
        if created is not None:
            self._created.labels(phase).observe(max((reached - created).total_seconds(), 0))
        last = times.get(before) if before else created
        if last is not None:
            self._between.labels(phase, before).observe(max((reached - last).total_seconds(), 0))

    async def text(self) -> bytes:
        """All of it, in Prometheus' text form."""
        own = generate_latest(self.registry)
        sources = self._sources
        if sources is None:
            return own
        vms = [each.raw for each in sources.vms.values()]
        vmis = [each.raw for each in sources.vmis.values()]
        pods = {each.meta.uid: each.meta.name for each in sources.pods.values()}
        return own + await asyncio.to_thread(machine_metrics.render, vms, vmis, pods)


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None

"""What work queues tell Prometheus, under the names that KubeVirt's dashboards query."""

from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # a second line for each counter, which nobody asks for

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


class Sized(Protocol):
    """A queue, as far as its depth goes."""

    def __len__(self) -> int: ...


class QueueMetrics:
    """The queues of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name, prefix = ("name",), "kubevirt_workqueue_"
        self._depth = Gauge(f"{prefix}depth", "Keys that wait to be worked on.", name, registry=registry)
        self._adds = Counter(f"{prefix}adds_total", "Keys that were put in.", name, registry=registry)
        self._retries = Counter(f"{prefix}retries_total", "Keys that failed.", name, registry=registry)
        self._waited = Histogram(
            f"{prefix}queue_duration_seconds", "Time that a key waited.", name, buckets=_BUCKETS, registry=registry
        )
        self._worked = Histogram(
            f"{prefix}work_duration_seconds", "Time of one reconcile.", name, buckets=_BUCKETS, registry=registry
        )

    def of(self, name: str) -> "QueueObserver":
        """An observer for the queue of that name."""
        return QueueObserver(
            self._depth.labels(name),
            self._adds.labels(name),
            self._retries.labels(name),
            self._waited.labels(name),
            self._worked.labels(name),
        )


class QueueObserver:
    """Counts for one queue."""

    def __init__(self, depth: Gauge, adds: Counter, retries: Counter, waited: Histogram, worked: Histogram) -> None:
        self._depth = depth
        self._adds, self._retries = adds, retries
        self._waited, self._worked = waited, worked

    def measures(self, queue: Sized) -> None:
        """The queue whose length is the depth, at each scrape."""
        self._depth.set_function(lambda: len(queue))

    def added(self) -> None:
        """A key was put in."""
        self._adds.inc()

    def retried(self) -> None:
        """A key failed."""
        self._retries.inc()

    def taken(self, waited: float) -> None:
        """A key waited so many seconds."""
        self._waited.observe(waited)

    def worked(self, seconds: float) -> None:
        """A reconcile took so many seconds."""
        self._worked.observe(seconds)

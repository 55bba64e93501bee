"""What a gateway tells Prometheus."""

import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

disable_created_metrics()  # a second line for each counter, which nobody asks for

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class GatewayMetrics:
    """Lives as long as the process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._admission = Histogram(
            "anyvisor_admission_duration_seconds",
            "Time from a webhook's question to its answer.",
            ("webhook",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._requests = Counter(
            "anyvisor_gateway_requests_total",
            "Requests to the aggregated groups, by answer.",
            ("group", "code"),
            registry=self.registry,
        )
        self._ends = Gauge(
            "anyvisor_certificate_end_timestamp_seconds",
            "When a certificate of the components ends.",
            ("certificate",),
            registry=self.registry,
        )

    def admitted(self, webhook: str, seconds: float) -> None:
        """A webhook's question was answered."""
        self._admission.labels(webhook).observe(seconds)

    def answered(self, group: str, code: int) -> None:
        """A request to an aggregated group was answered."""
        self._requests.labels(group, str(code)).inc()

    def certificate(self, name: str, end: datetime.datetime) -> None:
        """A certificate is in use from now on."""
        self._ends.labels(name).set(end.timestamp())

    async def text(self) -> bytes:
        """All of it, in Prometheus' text form."""
        return generate_latest(self.registry)

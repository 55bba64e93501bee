"""What components tell the kubelet and Prometheus."""

import datetime
import socket

import aiohttp

from anyvisor.cluster.metrics import GatewayMetrics
from anyvisor.cluster.probes import probes


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def test_probes_and_metrics_are_answered_while_it_runs() -> None:
    metrics, port = GatewayMetrics(), free_port()
    metrics.admitted("mutate", 0.003)
    metrics.answered("subresources.kubevirt.io", 403)
    metrics.certificate("gateway", datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC))
    async with probes(port, metrics.text), aiohttp.ClientSession() as session:
        for path in ("healthz", "readyz"):
            async with session.get(f"http://127.0.0.1:{port}/{path}") as answer:
                assert await answer.text() == "ok"
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert answer.content_type == "text/plain"
            told = await answer.text()
    assert 'anyvisor_admission_duration_seconds_bucket{le="0.005",webhook="mutate"} 1.0' in told
    assert 'anyvisor_gateway_requests_total{code="403",group="subresources.kubevirt.io"} 1.0' in told
    assert 'anyvisor_certificate_end_timestamp_seconds{certificate="gateway"} 1.7e+09' in told


async def test_port_zero_is_nowhere() -> None:
    async with probes(0, GatewayMetrics().text):
        pass

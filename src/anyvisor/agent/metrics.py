"""The agent's own metrics, read when they are scraped: nothing is counted twice."""

from collections import Counter as Count
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from anyvisor.agent.node_context import NodeContext
from anyvisor.hri.v1.types_pb2 import Phase

NAMES: Final = ("anyvisor_agent_machines", "anyvisor_agent_driver_ready", "anyvisor_agent_damaged_records")


class NodeCollector(Collector):
    """Machines by state, drivers by health."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        machines = GaugeMetricFamily(
            "anyvisor_agent_machines", "Machines of this node by driver and state.", labels=["driver", "state"]
        )
        for (driver, state), count in Count(self._states()).items():
            machines.add_metric([driver, state], count)
        yield machines
        drivers = GaugeMetricFamily(
            "anyvisor_agent_driver_ready", "Whether the driver can start machines now.", labels=["driver"]
        )
        for name, session in self._context.sessions.items():
            drivers.add_metric([name], float(session.usable))
        yield drivers
        damaged = GaugeMetricFamily(
            "anyvisor_agent_damaged_records", "Machines whose record cannot be used; see their VMIs."
        )
        damaged.add_metric([], len(self._context.damaged))
        yield damaged

    def _states(self) -> Iterator[tuple[str, str]]:
        for machine in self._context.machines.values():
            session = self._context.session_of(machine.record)
            state = session.states.get(machine.id) if session is not None else None
            word = Phase.Name(state.phase).removeprefix("PHASE_").lower() if state is not None else "unknown"
            yield machine.record.driver, word


def register(registry: CollectorRegistry, context: NodeContext) -> CollectorRegistry:
    """Let a registry export the node; one for each agent, as several may live in one process in tests."""
    registry.register(NodeCollector(context))
    return registry

"""What a virtual machine instance is to be."""

from typing import Annotated

from anyvisor.api.core import (
    Affinity,
    ExecAction,
    HTTPGetAction,
    PodDNSConfig,
    TCPSocketAction,
    Toleration,
    TopologySpreadConstraint,
)
from anyvisor.api.kubevirt.access import AccessCredential
from anyvisor.api.kubevirt.domain import DomainSpec
from anyvisor.api.kubevirt.network import Network
from anyvisor.api.kubevirt.volumes import UtilityVolume, Volume
from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32, Int64, Schema


class GuestAgentPing(Model, frozen=True, kw_only=True):
    """The guest agent answers."""


class Probe(Model, frozen=True, kw_only=True):
    """A check that is made again and again, in exactly one way."""

    exec: ExecAction | None = None
    failure_threshold: Int32 | None = None
    """Failures in a row that count as failure; 3 when absent."""
    guest_agent_ping: GuestAgentPing | None = None
    http_get: HTTPGetAction | None = None
    initial_delay_seconds: Int32 | None = None
    """Seconds after the start before the first check."""
    period_seconds: Int32 | None = None
    """Seconds between checks; 10 when absent."""
    success_threshold: Int32 | None = None
    """Successes in a row that count as success; 1 when absent."""
    tcp_socket: TCPSocketAction | None = None
    timeout_seconds: Int32 | None = None
    """Seconds that a check may take; 1 when absent."""


class VirtualMachineInstanceResourceClaim(Model, frozen=True, kw_only=True):
    """A claim on devices, by name or made from a template."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class VirtualMachineInstanceSpec(Model, frozen=True, kw_only=True):
    """One run of a virtual machine: the guest, and where and how it runs."""

    access_credentials: Annotated[tuple[AccessCredential, ...] | None, Schema(facts={"maxItems": 256})] = None
    """Keys and passwords that are put into the guest."""
    affinity: Affinity | None = None
    architecture: str | None = None
    """`amd64`, `arm64` or `s390x`; that of the installation when absent."""
    dns_config: PodDNSConfig | None = None
    dns_policy: str | None = None
    domain: DomainSpec
    """The guest's hardware."""
    eviction_strategy: str | None = None
    """When its node is emptied: `None`, `LiveMigrate`, `LiveMigrateIfPossible` or `External`."""
    hostname: str | None = None
    """The guest's host name; the name of the machine when absent."""
    hypervisor: str | None = None
    """The HypervisorClass that runs it; empty is the default class, `auto` lets the planner choose once, `auto/` and a
    list of `features`, `isolation`, `memory` and `start` by these, the most important first."""
    liveness_probe: Probe | None = None
    """A check whose failure ends the machine."""
    networks: Annotated[tuple[Network, ...] | None, Schema(facts={"maxItems": 256})] = None
    """The networks of its interfaces."""
    node_selector: dict[str, str] | None = None
    """Labels that the node must have."""
    priority_class_name: str | None = None
    """How important it is when room is short."""
    readiness_probe: Probe | None = None
    """A check whose failure takes the machine out of Services."""
    resource_claims: Annotated[tuple[VirtualMachineInstanceResourceClaim, ...] | None, Schema(keys=("name",))] = None
    scheduler_name: str | None = None
    service_account_name: str | None = None
    start_strategy: str | None = None
    """`Paused`: the guest is made and waits."""
    subdomain: str | None = None
    """The domain under which the host name is found, by a headless Service of that name."""
    termination_grace_period_seconds: Int64 | None = None
    """Seconds that the guest has to shut down; 30 when absent."""
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...] | None, Schema(keys=("topologyKey", "whenUnsatisfiable"))
    ] = None
    utility_volumes: Annotated[tuple[UtilityVolume, ...] | None, Schema(keys=("name",), facts={"maxItems": 256})] = None
    volumes: Annotated[tuple[Volume, ...] | None, Schema(facts={"maxItems": 256})] = None
    """The volumes of its disks and file systems."""

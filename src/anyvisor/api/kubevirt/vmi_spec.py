"""Undocumented."""

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
    """Undocumented."""


class Probe(Model, frozen=True, kw_only=True):
    """Undocumented."""

    exec: ExecAction | None = None
    failure_threshold: Int32 | None = None
    guest_agent_ping: GuestAgentPing | None = None
    http_get: HTTPGetAction | None = None
    initial_delay_seconds: Int32 | None = None
    period_seconds: Int32 | None = None
    success_threshold: Int32 | None = None
    tcp_socket: TCPSocketAction | None = None
    timeout_seconds: Int32 | None = None


class VirtualMachineInstanceResourceClaim(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class VirtualMachineInstanceSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    access_credentials: Annotated[tuple[AccessCredential, ...] | None, Schema(facts={"maxItems": 256})] = None
    affinity: Affinity | None = None
    architecture: str | None = None
    dns_config: PodDNSConfig | None = None
    dns_policy: str | None = None
    domain: DomainSpec
    eviction_strategy: str | None = None
    hostname: str | None = None
    hypervisor: str | None = None
    liveness_probe: Probe | None = None
    networks: Annotated[tuple[Network, ...] | None, Schema(facts={"maxItems": 256})] = None
    node_selector: dict[str, str] | None = None
    priority_class_name: str | None = None
    readiness_probe: Probe | None = None
    resource_claims: Annotated[tuple[VirtualMachineInstanceResourceClaim, ...] | None, Schema(keys=("name",))] = None
    scheduler_name: str | None = None
    service_account_name: str | None = None
    start_strategy: str | None = None
    subdomain: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...] | None, Schema(keys=("topologyKey", "whenUnsatisfiable"))
    ] = None
    utility_volumes: Annotated[tuple[UtilityVolume, ...] | None, Schema(keys=("name",), facts={"maxItems": 256})] = None
    volumes: Annotated[tuple[Volume, ...] | None, Schema(facts={"maxItems": 256})] = None

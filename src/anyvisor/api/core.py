"""Undocumented."""

from typing import Annotated

from anyvisor.api.meta import LabelSelector, Model
from anyvisor.api.wire import Int32, Int64, IntOrString, QuantityValue, Schema


class LocalObjectReference(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: Annotated[str | None, Schema(facts={"default": ""})] = None


class NodeSelectorRequirement(Model, frozen=True, kw_only=True):
    """Undocumented."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Model, frozen=True, kw_only=True):
    """Undocumented."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class PreferredSchedulingTerm(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preference: NodeSelectorTerm
    weight: Int32


class NodeSelector(Model, frozen=True, kw_only=True):
    """Undocumented."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]


class NodeAffinity(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] | None = None
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(Model, frozen=True, kw_only=True):
    """Undocumented."""

    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    topology_key: str


class WeightedPodAffinityTerm(Model, frozen=True, kw_only=True):
    """Undocumented."""

    pod_affinity_term: PodAffinityTerm
    weight: Int32


class PodAffinity(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None


class PodAntiAffinity(Model, frozen=True, kw_only=True):
    """Undocumented."""

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None


class Affinity(Model, frozen=True, kw_only=True):
    """Undocumented."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Toleration(Model, frozen=True, kw_only=True):
    """Undocumented."""

    effect: str | None = None
    key: str | None = None
    operator: str | None = None
    toleration_seconds: Int64 | None = None
    value: str | None = None


class TypedLocalObjectReference(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_group: str | None = None
    kind: str
    name: str


class TypedObjectReference(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_group: str | None = None
    kind: str
    name: str
    namespace: str | None = None


class VolumeResourceRequirements(Model, frozen=True, kw_only=True):
    """Undocumented."""

    limits: dict[str, QuantityValue] | None = None
    requests: dict[str, QuantityValue] | None = None


class PersistentVolumeClaimSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    access_modes: tuple[str, ...] | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    resources: VolumeResourceRequirements | None = None
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str | None = None


class PodDNSConfigOption(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: str | None = None
    value: str | None = None


class PodDNSConfig(Model, frozen=True, kw_only=True):
    """Undocumented."""

    nameservers: tuple[str, ...] | None = None
    options: tuple[PodDNSConfigOption, ...] | None = None
    searches: tuple[str, ...] | None = None


class ExecAction(Model, frozen=True, kw_only=True):
    """Undocumented."""

    command: tuple[str, ...] | None = None


class HTTPHeader(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: str
    value: str


class HTTPGetAction(Model, frozen=True, kw_only=True):
    """Undocumented."""

    host: str | None = None
    http_headers: tuple[HTTPHeader, ...] | None = None
    path: str | None = None
    port: IntOrString
    scheme: str | None = None


class TCPSocketAction(Model, frozen=True, kw_only=True):
    """Undocumented."""

    host: str | None = None
    port: IntOrString


class TopologySpreadConstraint(Model, frozen=True, kw_only=True):
    """Undocumented."""

    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    max_skew: Int32
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    topology_key: str
    when_unsatisfiable: str


class ObjectFieldSelector(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    field_path: str


class ResourceFieldSelector(Model, frozen=True, kw_only=True):
    """Undocumented."""

    container_name: str | None = None
    divisor: QuantityValue | None = None
    resource: str


class DownwardAPIVolumeFile(Model, frozen=True, kw_only=True):
    """Undocumented."""

    field_ref: ObjectFieldSelector | None = None
    mode: Int32 | None = None
    path: str
    resource_field_ref: ResourceFieldSelector | None = None


class PodPersistentVolumeClaimVolumeSource(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str
    read_only: bool | None = None

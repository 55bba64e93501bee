"""Types of the Kubernetes core API that machines embed."""

from typing import Annotated

from anyvisor.api.meta import LabelSelector, Model
from anyvisor.api.wire import Int32, Int64, IntOrString, QuantityValue, Schema


class LocalObjectReference(Model, frozen=True, kw_only=True):
    """An object of the same namespace, by name."""

    name: Annotated[str | None, Schema(facts={"default": ""})] = None


class NodeSelectorRequirement(Model, frozen=True, kw_only=True):
    """One requirement on a node: a key, an operator and values."""

    key: str
    operator: str
    """`In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`."""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Model, frozen=True, kw_only=True):
    """Requirements that must all hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class PreferredSchedulingTerm(Model, frozen=True, kw_only=True):
    """A wish about nodes, with its weight."""

    preference: NodeSelectorTerm
    weight: Int32
    """From 1 to 100; the sums of the fulfilled wishes are compared."""


class NodeSelector(Model, frozen=True, kw_only=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...]


class NodeAffinity(Model, frozen=True, kw_only=True):
    """Which nodes are wanted or needed."""

    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] | None = None
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(Model, frozen=True, kw_only=True):
    """Which pods, and what counts as the same place."""

    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    topology_key: str
    """The node label whose equal values mean the same place."""


class WeightedPodAffinityTerm(Model, frozen=True, kw_only=True):
    """A wish about nearness to pods, with its weight."""

    pod_affinity_term: PodAffinityTerm
    weight: Int32


class PodAffinity(Model, frozen=True, kw_only=True):
    """Pods to run near to."""

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None


class PodAntiAffinity(Model, frozen=True, kw_only=True):
    """Pods to run away from."""

    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] | None = None
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None


class Affinity(Model, frozen=True, kw_only=True):
    """Where a machine is wanted or needed to run."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Toleration(Model, frozen=True, kw_only=True):
    """A taint that a machine may run with."""

    effect: str | None = None
    """`NoSchedule`, `PreferNoSchedule` or `NoExecute`; absent means all."""
    key: str | None = None
    operator: str | None = None
    """`Equal` (the default) or `Exists`."""
    toleration_seconds: Int64 | None = None
    """How long a `NoExecute` taint is borne."""
    value: str | None = None


class TypedLocalObjectReference(Model, frozen=True, kw_only=True):
    """An object of the same namespace, by kind and name."""

    api_group: str | None = None
    kind: str
    name: str


class TypedObjectReference(Model, frozen=True, kw_only=True):
    """An object by kind and name, also of another namespace."""

    api_group: str | None = None
    kind: str
    name: str
    namespace: str | None = None


class VolumeResourceRequirements(Model, frozen=True, kw_only=True):
    """How large a volume must be, and may be."""

    limits: dict[str, QuantityValue] | None = None
    requests: dict[str, QuantityValue] | None = None


class PersistentVolumeClaimSpec(Model, frozen=True, kw_only=True):
    """What a claim asks of storage."""

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
    """One resolver option."""

    name: str | None = None
    value: str | None = None


class PodDNSConfig(Model, frozen=True, kw_only=True):
    """Resolver settings that add to those of the DNS policy."""

    nameservers: tuple[str, ...] | None = None
    options: tuple[PodDNSConfigOption, ...] | None = None
    searches: tuple[str, ...] | None = None


class ExecAction(Model, frozen=True, kw_only=True):
    """A command whose success is exit code 0."""

    command: tuple[str, ...] | None = None


class HTTPHeader(Model, frozen=True, kw_only=True):
    """One header of a probe's request."""

    name: str
    value: str


class HTTPGetAction(Model, frozen=True, kw_only=True):
    """An HTTP request whose success is a status from 200 to 399."""

    host: str | None = None
    http_headers: tuple[HTTPHeader, ...] | None = None
    path: str | None = None
    port: IntOrString
    scheme: str | None = None


class TCPSocketAction(Model, frozen=True, kw_only=True):
    """A TCP connection whose success is that it opens."""

    host: str | None = None
    port: IntOrString


class TopologySpreadConstraint(Model, frozen=True, kw_only=True):
    """How evenly pods spread over places."""

    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    max_skew: Int32
    """How far the counts of two places may differ."""
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    topology_key: str
    when_unsatisfiable: str
    """`DoNotSchedule` or `ScheduleAnyway`."""


class ObjectFieldSelector(Model, frozen=True, kw_only=True):
    """A field of the machine's own object."""

    api_version: str | None = None
    field_path: str


class ResourceFieldSelector(Model, frozen=True, kw_only=True):
    """A resource amount of a container."""

    container_name: str | None = None
    divisor: QuantityValue | None = None
    resource: str


class DownwardAPIVolumeFile(Model, frozen=True, kw_only=True):
    """One file with a fact about the machine."""

    field_ref: ObjectFieldSelector | None = None
    mode: Int32 | None = None
    path: str
    resource_field_ref: ResourceFieldSelector | None = None


class PodPersistentVolumeClaimVolumeSource(Model, frozen=True, kw_only=True):
    """A claim, as a pod mounts it."""

    claim_name: str
    read_only: bool | None = None

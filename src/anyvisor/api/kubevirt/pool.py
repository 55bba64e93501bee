"""A number of like virtual machines."""

from typing import Annotated

from anyvisor.api.core import NodeSelectorRequirement
from anyvisor.api.kubevirt.vm import VirtualMachineSpec
from anyvisor.api.meta import LabelSelector, Model, ObjectMeta
from anyvisor.api.wire import Duration, Int32, Int64, IntOrString, Schema, Time


class VirtualMachinePoolAutohealingStrategy(Model, frozen=True, kw_only=True):
    """When a member that does not start is replaced."""

    min_failing_to_start_duration: Duration | None = None
    start_up_failure_threshold: Annotated[Int64 | None, Schema(facts={"minimum": 1})] = None


class VirtualMachinePoolNameGeneration(Model, frozen=True, kw_only=True):
    """How the members' secrets and config maps are named."""

    append_index_to_config_map_refs: bool | None = None
    append_index_to_secret_refs: bool | None = None


class VirtualMachinePoolOpportunisticScaleInStrategy(Model, frozen=True, kw_only=True):
    """Members leave when they stop by themselves."""

    state_preservation: Annotated[str | None, Schema(facts={"enum": ["Disabled", "Offline", "Online"]})] = None


class VirtualMachinePoolSelectors(Model, frozen=True, kw_only=True):
    """Members that leave first."""

    label_selector: LabelSelector | None = None
    node_selector_requirement_matcher: tuple[NodeSelectorRequirement, ...] | None = None


class VirtualMachinePoolSelectionPolicy(Model, frozen=True, kw_only=True):
    """Which members are taken first."""

    selectors: VirtualMachinePoolSelectors | None = None
    sort_policy: Annotated[
        str | None, Schema(facts={"enum": ["AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"]})
    ] = None


class VirtualMachinePoolProactiveScaleInStrategy(Model, frozen=True, kw_only=True):
    """Members are stopped to make the pool smaller."""

    selection_policy: VirtualMachinePoolSelectionPolicy | None = None
    state_preservation: Annotated[str | None, Schema(facts={"enum": ["Disabled", "Offline", "Online"]})] = None


class VirtualMachinePoolUnmanagedStrategy(Model, frozen=True, kw_only=True):
    """Nothing is done by the pool."""


class VirtualMachinePoolScaleInStrategy(Model, frozen=True, kw_only=True):
    """How the pool gets smaller; exactly one way."""

    opportunistic: VirtualMachinePoolOpportunisticScaleInStrategy | None = None
    proactive: VirtualMachinePoolProactiveScaleInStrategy | None = None
    unmanaged: VirtualMachinePoolUnmanagedStrategy | None = None


class VirtualMachineOpportunisticUpdateStrategy(Model, frozen=True, kw_only=True):
    """Members change when they restart by themselves."""


class VirtualMachinePoolProactiveUpdateStrategy(Model, frozen=True, kw_only=True):
    """Members are restarted to change."""

    selection_policy: VirtualMachinePoolSelectionPolicy | None = None


class VirtualMachinePoolUpdateStrategy(Model, frozen=True, kw_only=True):
    """How members follow the template; exactly one way."""

    opportunistic: VirtualMachineOpportunisticUpdateStrategy | None = None
    proactive: VirtualMachinePoolProactiveUpdateStrategy | None = None
    unmanaged: VirtualMachinePoolUnmanagedStrategy | None = None


class VirtualMachineTemplateSpec(Model, frozen=True, kw_only=True):
    """What members are made from."""

    metadata: Annotated[ObjectMeta | None, Schema(nullable=True, opaque=True)] = None
    spec: VirtualMachineSpec | None = None


class VirtualMachinePoolSpec(Model, frozen=True, kw_only=True):
    """How many members of what."""

    autohealing: VirtualMachinePoolAutohealingStrategy | None = None
    max_unavailable: IntOrString | None = None
    name_generation: VirtualMachinePoolNameGeneration | None = None
    paused: bool | None = None
    replicas: Annotated[Int32 | None, Schema(facts={"minimum": 0})] = None
    scale_in_strategy: VirtualMachinePoolScaleInStrategy | None = None
    selector: LabelSelector
    update_strategy: VirtualMachinePoolUpdateStrategy | None = None
    virtual_machine_template: VirtualMachineTemplateSpec


class VirtualMachinePoolCondition(Model, frozen=True, kw_only=True):
    """One aspect of the pool's state."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class VirtualMachinePoolStatus(Model, frozen=True, kw_only=True):
    """How many members there are."""

    conditions: tuple[VirtualMachinePoolCondition, ...] | None = None
    label_selector: str | None = None
    ready_replicas: Int32 | None = None
    replicas: Int32 | None = None


class VirtualMachinePool(Model, frozen=True, kw_only=True):
    """Keeps a number of like virtual machines."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachinePoolSpec
    status: Annotated[VirtualMachinePoolStatus | None, Schema(nullable=True)] = None

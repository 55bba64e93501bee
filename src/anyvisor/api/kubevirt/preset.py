"""Defaults for virtual machine instances, chosen by labels; deprecated."""

from anyvisor.api.kubevirt.domain import DomainSpec
from anyvisor.api.meta import LabelSelector, Model, ObjectMeta


class VirtualMachineInstancePresetSpec(Model, frozen=True, kw_only=True):
    """Which instances, and which hardware."""

    domain: DomainSpec | None = None
    selector: LabelSelector


class VirtualMachineInstancePreset(Model, frozen=True, kw_only=True):
    """Hardware that matching instances get; deprecated in favour of instance types."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstancePresetSpec | None = None

"""Undocumented."""

from anyvisor.api.kubevirt.domain import DomainSpec
from anyvisor.api.meta import LabelSelector, Model, ObjectMeta


class VirtualMachineInstancePresetSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    domain: DomainSpec | None = None
    selector: LabelSelector


class VirtualMachineInstancePreset(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: VirtualMachineInstancePresetSpec | None = None

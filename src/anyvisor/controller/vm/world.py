"""What one pass over a VirtualMachine sees, and what it builds while it runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from anyvisor.api import instancetypes
from anyvisor.api.meta import Json, list_at, object_at
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Draft
from anyvisor.controller.settings import Settings


def no_objects() -> dict[str, Json]:
    """An empty cache."""
    return {}


@dataclass(frozen=True, slots=True)
class VmWorld:
    """All that decides a pass; nothing else does."""

    vm: Json
    vmi: Json | None
    """The instance of the VM's name, whoever owns it."""
    now: datetime
    jitter: Callable[[int], int]
    """A random number below its argument; spreads the restarts of many VMs that failed together."""
    revisions: Mapping[str, Json] = field(default_factory=no_objects)
    """ControllerRevisions in the VM's namespace that the VM controls, by name."""
    data_volumes: Mapping[str, Json] = field(default_factory=no_objects)
    """DataVolumes in the VM's namespace, by name."""
    claims: Mapping[str, Json] = field(default_factory=no_objects)
    """PersistentVolumeClaims in the VM's namespace, by name."""
    types: Mapping[str, Json] = field(default_factory=no_objects)
    """The instance type and the preference that the VM refers to, as they are now, by the field that refers to them."""
    settings: Settings = field(default_factory=Settings)


@dataclass(slots=True)
class VmPass:
    """The state of one pass: working copies, and whether an instance was created or deleted in it."""

    world: VmWorld
    vm: Json
    """The copy whose status this pass writes."""
    vmi: Json | None
    """The instance that this VM owns, with what this pass changed on it."""
    draft: Draft = field(default_factory=Draft)
    start_expected: bool = False
    stop_expected: bool = False
    types: dict[str, Json] = field(default_factory=no_objects)
    """The specs of instance type and preference that hold for the VM, by the field that refers to them."""

    @property
    def effective(self) -> Json:
        """The VM as its instances run: with instance type and preference in the template."""
        if not self.types:
            return self.vm
        vm = duplicate(self.vm)
        instancetypes.apply(self.types.get("instancetype"), self.types.get("preference"), vm["spec"]["template"])
        return vm

    @property
    def settled(self) -> bool:
        """Whether no instance was created or deleted in this pass."""
        return not (self.start_expected or self.stop_expected)


def begin(world: VmWorld, vmi: Json | None) -> VmPass:
    """Start a pass on working copies."""
    vm = duplicate(world.vm)
    vm.setdefault("status", {})
    return VmPass(world, vm, duplicate(vmi))


def template_spec(vm: Json) -> Json:
    """`spec.template.spec`, or an empty object."""
    return object_at(vm, "spec", "template", "spec")


def volumes(spec: Json) -> list[Json]:
    """The volumes of an instance spec."""
    return list_at(spec, "volumes")

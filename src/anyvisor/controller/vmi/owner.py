"""Ownership between a VM, its instance and the instance's pods."""

from anyvisor.api.meta import Json, controller_of, controller_reference, uid
from anyvisor.controller.vmi.world import VmiPass


def vmi_reference(vmi: Json) -> Json:
    """The owner reference by which the instance controls another object."""
    return controller_reference({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", **vmi})


def pod_reference(pod: Json) -> Json:
    """The owner reference by which a launcher pod controls the pods of its hot-plugged volumes."""
    return controller_reference({"apiVersion": "v1", "kind": "Pod", **pod})


def has_owner_vm(run: VmiPass) -> bool:
    """Whether the VM that the instance belongs to still exists."""
    reference = controller_of(run.world.vmi)
    if reference is None or reference.get("kind") != "VirtualMachine" or run.world.owner is None:
        return False
    return reference.get("uid") == uid(run.world.owner)

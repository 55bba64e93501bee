"""The entry point: one decision per request, by kind."""

from collections.abc import Callable
from typing import Final

from anyvisor.admission import eviction, kubevirt, migration, preset, replicaset, types, vm, vmi
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import CREATE, AdmissionRequest, AdmissionResult, User
from anyvisor.admission.values import Obj

Admit = Callable[[AdmissionRequest, ClusterConfig], AdmissionResult]

ADMITTERS: dict[str, Admit] = {
    "VirtualMachine": vm.admit,
    "VirtualMachineInstance": vmi.admit,
    "VirtualMachineInstanceMigration": migration.admit,
    "VirtualMachineInstanceReplicaSet": replicaset.admit,
    "VirtualMachineInstancePreset": preset.admit,
    "VirtualMachineInstancetype": types.admit_instancetype,
    "VirtualMachineClusterInstancetype": types.admit_instancetype,
    "VirtualMachinePreference": types.admit_preference,
    "VirtualMachineClusterPreference": types.admit_preference,
    "KubeVirt": kubevirt.admit,
    "Eviction": eviction.admit,
}


_CONTROLLER: Final = User("system:anyvisor:controller")
"""Whose VMI a VM's machine is; only with its rights may a VMI state all of its fields."""


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """Decide on a request; kinds without rules here are allowed as they are."""
    admitter = ADMITTERS.get(request.kind)
    if admitter is None:
        return AdmissionResult(allowed=True, object=request.object)
    return admitter(request, config)


def admit_machine(spec: Obj, config: ClusterConfig, *, namespace: str, uuid: str) -> AdmissionResult:
    """The decision on a machine that nobody creates: what it would get, with `uuid` for each that would be made."""
    machine: Obj = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "machine", "namespace": namespace},
        "spec": spec,
    }
    question = AdmissionRequest(
        operation=CREATE,
        kind="VirtualMachineInstance",
        object=machine,
        new_uuid=lambda: uuid,
        now="2000-01-01T00:00:00Z",
        namespace=namespace,
        name="machine",
        user=_CONTROLLER,
        dry_run=True,
    )
    return admit(question, config)

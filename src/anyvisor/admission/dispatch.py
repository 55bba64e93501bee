"""The entry point: one decision per request, by kind."""

from collections.abc import Callable

from anyvisor.admission import eviction, kubevirt, migration, preset, replicaset, vm, vmi
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import AdmissionRequest, AdmissionResult

Admit = Callable[[AdmissionRequest, ClusterConfig], AdmissionResult]

ADMITTERS: dict[str, Admit] = {
    "VirtualMachine": vm.admit,
    "VirtualMachineInstance": vmi.admit,
    "VirtualMachineInstanceMigration": migration.admit,
    "VirtualMachineInstanceReplicaSet": replicaset.admit,
    "VirtualMachineInstancePreset": preset.admit,
    "KubeVirt": kubevirt.admit,
    "Eviction": eviction.admit,
}


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """Decide on a request; kinds without rules here are allowed as they are."""
    admitter = ADMITTERS.get(request.kind)
    if admitter is None:
        return AdmissionResult(allowed=True, object=request.object)
    return admitter(request, config)

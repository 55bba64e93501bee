"""Admission of VirtualMachineInstancePresets (deprecated)."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.presets import DEPRECATION
from anyvisor.admission.result import CREATE, UPDATE, AdmissionRequest, AdmissionResult, Causes, refuse
from anyvisor.admission.rules import disks, firmware
from anyvisor.admission.values import mapping

_AT = "spec.domain"


def admit(request: AdmissionRequest, config: ClusterConfig) -> AdmissionResult:
    """The rules for the part of a domain that a preset may carry."""
    del config
    if request.operation not in (CREATE, UPDATE):
        return AdmissionResult(allowed=True, object=request.object)
    out, written = Causes(), mapping(request.object.get("spec")).get("domain")
    if written is None:
        out.required(_AT, f"{_AT} is missing; say what the preset sets")
        return refuse(request.object, out)
    domain = mapping(written)
    disks.check(f"{_AT}.devices.disks", mapping(domain.get("devices")).get("disks"), out)
    firmware.check(f"{_AT}.firmware", domain.get("firmware"), out)
    if out:
        return refuse(request.object, out)
    return AdmissionResult(allowed=True, object=request.object, warnings=[DEPRECATION])

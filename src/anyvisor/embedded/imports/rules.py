"""Admission of DataVolumes, of those that VMs bring along, and of data sources: what cannot be filled is refused when
it is created, with its field."""

from dataclasses import dataclass
from typing import Literal

from anyvisor.api.meta import Json, list_at, object_at
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.status import Cause
from anyvisor.embedded.imports import claims, sources
from anyvisor.embedded.imports.kinds import CLONE_SOURCES, DATA_VOLUMES, GROUP, IMPORT_SOURCES
from anyvisor.embedded.imports.sources import SourceError

_MACHINE = "VirtualMachine"
_NO_PODS = "spec.priorityClassName has no effect: imports are no pods here"


@dataclass(frozen=True, slots=True)
class ImportRules:
    """Verdicts on writes of the importer's kinds."""

    phase: Literal["mutating", "validating"] = "validating"

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """See the module."""
        if request.subresource or request.object is None:
            return ALLOWED
        if request.resource.kind == _MACHINE:
            return _check_templates(request.object, request.old_object or {}, request.namespace)
        if request.resource.group != GROUP:
            return ALLOWED
        spec = object_at(request.object, "spec")
        if request.operation == "UPDATE":
            before = object_at(request.old_object or {}, "spec")
            return ALLOWED if spec == before else _refused("spec", "cannot be changed; delete it, and make it anew")
        if request.operation != "CREATE":
            return ALLOWED
        try:
            _check(request.resource.kind, spec, request.namespace)
        except SourceError as error:
            return _refused(error.field, error.sentence)
        return AdmissionResult(warnings=[_NO_PODS] if spec.get("priorityClassName") else [])


def _check_templates(vm: Json, before: Json, namespace: str) -> AdmissionResult:
    """What a VM brings along is held to the same rules when it is created, and what an update adds."""
    known, causes = list_at(before, "spec", "dataVolumeTemplates"), list[Cause]()
    for index, template in enumerate(list_at(vm, "spec", "dataVolumeTemplates")):
        if template in known:
            continue
        try:
            _check(DATA_VOLUMES.kind, object_at(template, "spec"), namespace)
        except SourceError as error:
            field = f"spec.dataVolumeTemplates[{index}].{error.field}"
            causes.append(Cause(field, "FieldValueInvalid", f"{field} {error.sentence}"))
    return AdmissionResult(causes=causes)


def _check(kind: str, spec: Json, namespace: str) -> None:
    if kind == DATA_VOLUMES.kind:
        claims.check(spec, sources.of_data_volume(spec, namespace))
    elif kind == IMPORT_SOURCES.kind:
        sources.of_import(spec)
    elif kind == CLONE_SOURCES.kind:
        sources.of_clone(spec)


def _refused(field: str, sentence: str) -> AdmissionResult:
    return AdmissionResult(causes=[Cause(field, "FieldValueInvalid", f"{field} {sentence}")])

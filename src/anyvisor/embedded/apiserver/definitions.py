"""The status of a new CustomResourceDefinition: whether its names are free is decided with its creation."""

from typing import Any, Literal

from anyvisor.embedded.apiserver import crd_rules
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.resource import Registry

Json = dict[str, Any]


class NamesCheck:
    """Sets the conditions NamesAccepted and Established of a CRD that is created."""

    phase: Literal["mutating", "validating"] = "mutating"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Answer the creation of a CRD; one with mistakes is refused later, by its validation."""
        crd = request.object
        if request.resource.plural != crd_rules.PLURAL or request.operation != "CREATE" or crd is None:
            return ALLOWED
        if crd_rules.check(crd, None):
            return ALLOWED
        clashes = crd_rules.conflicts(crd, self._registry.all())
        status = crd_rules.status_of(crd, clashes, crd["metadata"]["creationTimestamp"])
        return AdmissionResult(object={**crd, "status": status})

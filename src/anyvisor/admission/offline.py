"""The whole way of one object without a server: shape, defaults, schema, rules.

The order is that of the API: unknown fields, then defaults, then the schema on the defaulted object, then rules.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit
from anyvisor.admission.result import CREATE, NOTHING, AdmissionRequest, AdmissionResult, Related, User, refuse
from anyvisor.admission.schema import Schemas
from anyvisor.admission.values import Obj, mapping, text

# Kinds whose objects are written again by the defaults, which turns missing scalars into zero values.
_REWRITTEN = frozenset({"VirtualMachine", "VirtualMachineInstance"})


@dataclass(frozen=True, slots=True)
class Offline:
    """Decides on objects with fixed schemas, configuration and surroundings."""

    schemas: Schemas
    config: ClusterConfig
    new_uuid: Callable[[], str]
    now: str

    def request(self, obj: Obj, kind: str = "", *, related: Related = NOTHING) -> AdmissionRequest:
        """A request to create the object."""
        metadata = mapping(obj.get("metadata"))
        return AdmissionRequest(
            operation=CREATE,
            kind=kind or text(obj.get("kind")),
            object=obj,
            new_uuid=self.new_uuid,
            now=self.now,
            namespace=text(metadata.get("namespace")),
            name=text(metadata.get("name")),
            user=User(),
            related=related,
        )

    def decide(self, request: AdmissionRequest) -> AdmissionResult:
        """The decision that a server comes to."""
        obj = request.object
        schema = self.schemas.find(text(obj.get("apiVersion")), request.kind)
        if schema is None or request.subresource:
            return admit(request, self.config)
        if causes := schema.unknown(obj):
            return refuse(obj, causes)
        result = admit(request, self.config)
        lenient = request.kind in _REWRITTEN
        if causes := schema.check(obj, lenient=lenient):
            return replace(refuse(obj, causes), object=result.object)
        return result

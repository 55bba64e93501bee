"""Admission in process: the rules of the virtualization API, the planner's verdict, and what pods may be made.

The same functions answer a cluster's webhooks (`gateway/admission.py`).
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from anyvisor.admission.dispatch import ADMITTERS
from anyvisor.admission.result import AdmissionRequest as Question
from anyvisor.admission.result import AdmissionResult as Answer
from anyvisor.admission.result import Cause as Reason
from anyvisor.admission.result import User
from anyvisor.api.meta import labels
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.status import Cause
from anyvisor.embedded.world import ServerWorld
from anyvisor.gateway import admission

Json = dict[str, Any]
encode = msgspec.json.Encoder().encode

_REVIEWED = "the rules of the virtualization API allow"
_POD_LABEL = "kubevirt.io"
_OUR_PODS = ("virt-launcher", "hotplug-disk")
_CONTROLLER = "system:anyvisor:controller"


@dataclass(frozen=True, slots=True)
class VirtualizationRules:
    """Defaults (as `mutating`) or verdict (as `validating`) for the kinds that the admission room knows."""

    world: ServerWorld
    phase: Literal["mutating", "validating"]

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """See the class."""
        kind = request.resource.kind
        if kind not in ADMITTERS or request.subresource not in ("", "status"):
            return ALLOWED
        if self.phase == "validating":
            return self._review(request)
        request.notes.pop(_REVIEWED, None)
        answer = admission.prepare(self._question(request), self.world)
        if not answer.allowed:
            return _refusal(answer)
        if answer.reviewed:
            request.notes[_REVIEWED] = self._asked(answer.object)
        return AdmissionResult(object=answer.object, warnings=answer.warnings)

    def _review(self, request: AdmissionRequest) -> AdmissionResult:
        """The second turn, which is the first one's where that was asked the same of the same world.

        The rules are a pure function of the object and of what they look up, and defaults that are filled in twice are
        those that were filled in once: so an answer holds until the object, or any stored object, is another.
        """
        if request.notes.get(_REVIEWED) == self._asked(request.object):
            return ALLOWED
        answer = admission.review(self._question(request), self.world)
        return ALLOWED if answer.allowed else _refusal(answer)

    def _asked(self, obj: Json | None) -> tuple[int, bytes]:
        return self.world.version, encode(obj)

    def _question(self, request: AdmissionRequest) -> Question:
        return Question(
            operation=request.operation,
            kind=request.resource.kind,
            object=request.object or {},
            new_uuid=lambda: str(uuid.uuid4()),
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            namespace=request.namespace,
            name=request.name,
            old_object=request.old_object,
            user=User(request.user.user, request.user.groups, request.user.extra),
            dry_run=request.dry_run,
            subresource=request.subresource,
            related=self.world,
        )


def _refusal(answer: Answer) -> AdmissionResult:
    if answer.causes:
        return AdmissionResult(causes=_causes(answer.causes), warnings=answer.warnings)
    return AdmissionResult(denied=answer.message, code=answer.code, warnings=answer.warnings)


def _causes(found: Sequence[Reason]) -> list[Cause]:
    return [Cause(cause.field, cause.type, cause.message) for cause in found]


@dataclass(frozen=True, slots=True)
class LauncherPodsOnly:
    """This machine runs launchers of VMs and no other containers: another Pod would wait for ever."""

    phase: Literal["mutating", "validating"] = "validating"

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        """Refuse a Pod that is no launcher made by our own controller."""
        if request.operation != "CREATE" or request.subresource or request.resource.kind != "Pod":
            return ALLOWED
        if request.user.user == _CONTROLLER and labels(request.object or {}).get(_POD_LABEL) in _OUR_PODS:
            return ALLOWED
        return AdmissionResult(
            denied="this control plane runs launcher pods of VMs only, and makes them itself: create a VirtualMachine, "
            "or use a Kubernetes cluster for containers"
        )

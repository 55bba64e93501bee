"""The two turns of admission, for the embedded server and for a cluster's webhooks alike.

The rules run twice in a write, as the API's order wants it: once for the defaults, before the schema is checked, and
once for what the rules refuse, after it. Where nothing changes between the turns, the answer of the first one holds,
which says so (`reviewed`). The planner is asked at the first turn, which alone knows what the user wrote and what came
from a default.
"""

from dataclasses import replace

from anyvisor.admission import unserved
from anyvisor.admission.dispatch import admit
from anyvisor.admission.result import AdmissionRequest, AdmissionResult, refuse
from anyvisor.gateway import verdicts
from anyvisor.gateway.verdicts import World


def prepare(request: AdmissionRequest, world: World) -> AdmissionResult:
    """The mutating turn: the object with its defaults, or why no driver can run it."""
    answer = admit(request, world.config())
    if not answer.allowed:
        # Refused after the schema, which may have a better reason.
        return AdmissionResult(allowed=True, object=request.object)
    unserved_here = unserved.check(request.kind, answer.object, request.old_object)
    if unserved_here:
        return refuse(answer.object, unserved_here)
    verdict = verdicts.judge(world, request, answer)
    if verdict.causes:
        return replace(refuse(verdict.object, verdict.causes), warnings=(*answer.warnings, *verdict.warnings))
    return replace(
        answer,
        object=verdict.object,
        warnings=(*answer.warnings, *verdict.warnings),
        reviewed=verdict.as_asked,
    )


def review(request: AdmissionRequest, world: World) -> AdmissionResult:
    """The validating turn: every reason at once why the object is refused."""
    return admit(request, world.config())

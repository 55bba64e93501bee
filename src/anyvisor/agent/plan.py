"""The plan of a launcher pod, which the agent executes and never makes anew."""

import hashlib
from dataclasses import dataclass
from typing import Final

from anyvisor.api.meta import Json, annotations
from anyvisor.planning.plan import Plan, PlanError, decode

ANNOTATION: Final = "anyvisor.io/plan"


@dataclass(frozen=True, slots=True)
class PodPlan:
    """A plan and the digest of its bytes."""

    plan: Plan
    digest: str


def of_pod(pod: Json) -> PodPlan:
    """The plan of a launcher pod; raises PlanError."""
    text = annotations(pod).get(ANNOTATION, "")
    if not text:
        raise PlanError(f"the launcher pod has no annotation {ANNOTATION}; the controller must set it")
    return PodPlan(decode(text), "sha256:" + hashlib.sha256(text.encode()).hexdigest())

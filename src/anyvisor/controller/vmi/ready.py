"""The instance's Ready condition, which Services and people go by."""

from anyvisor.api.meta import Json, condition
from anyvisor.controller import words
from anyvisor.controller.conditions import copied, make, update
from anyvisor.controller.vmi import pods
from anyvisor.controller.vmi.world import VmiPass


def sync_ready(run: VmiPass, pod: Json | None) -> None:
    """Ready is the pod's readiness while the guest runs, and False with the reason before and after."""
    if pod is None or pods.is_temporary(pod):
        _not_ready(run, "PodNotExists", "The launcher pod does not exist or is not scheduled yet.")
    elif pods.is_down_or_going(pod):
        _not_ready(run, "PodTerminating", "The launcher pod is ending or has ended.")
    elif run.phase != words.RUNNING:
        _not_ready(run, "GuestNotRunning", "The guest is not reported as running.")
    elif (found := condition(pod, words.READY)) is not None:
        update(run.conditions, copied(found))
    else:
        _not_ready(run, "PodConditionMissing", "The launcher pod has no Ready condition yet.")


def _not_ready(run: VmiPass, reason: str, message: str) -> None:
    update(run.conditions, make(words.READY, "False", reason, message, run.world.now))

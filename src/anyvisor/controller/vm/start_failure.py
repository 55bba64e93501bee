"""Counts starts that end before the guest ever ran, and delays the next one ever longer."""

from datetime import timedelta
from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.conditions import parse_timestamp, timestamp
from anyvisor.controller.vm.run_strategy import strategy_of
from anyvisor.controller.vm.world import VmPass

MAX_DELAY: Final = 300
"""Seconds; the longest time between two tries."""
INTERVAL: Final = 10
"""Seconds; grows with the square of the number of failures."""
RESTARTING: Final = frozenset({"Always", "RerunOnFailure", "Once"})
"""Strategies that try again on their own, so that a failure is worth counting."""


def is_final(vmi: Json) -> bool:
    """Whether the run is over."""
    return text_at(vmi, "status", "phase") in {words.SUCCEEDED, words.FAILED}


def was_running(vmi: Json | None) -> bool:
    """Whether the guest ever ran in this instance."""
    if vmi is None:
        return False
    return any(entry.get("phase") == words.RUNNING for entry in list_at(vmi, "status", "phaseTransitionTimestamps"))


def backoff_left(run: VmPass) -> int:
    """Seconds until the VM may be started again; 0 when it may be now."""
    retry = parse_timestamp(object_at(run.vm, "status", "startFailure").get("retryAfterTimestamp"))
    if retry is None:
        return 0
    return max(0, int((retry - run.world.now).total_seconds()))


def delay(failures: int, jitter: int) -> int:
    """Seconds to wait after so many failures in a row; `jitter` is at most half the undelayed value."""
    return min(MAX_DELAY, INTERVAL * failures**2 + jitter)


def sync_start_failure(run: VmPass) -> None:
    """Count a start that failed early, or clear the count once the guest ran or nobody would try again."""
    status = run.vm["status"]
    if was_running(run.vmi) or strategy_of(run.vm) not in RESTARTING:
        status.pop("startFailure", None)
        return
    if run.vmi is None or not is_final(run.vmi):
        return
    failure = object_at(status, "startFailure")
    if failure.get("lastFailedVMIUID") == uid(run.vmi):
        return
    count = int(failure.get("consecutiveFailCount") or 0) + 1
    wait = delay(count, run.world.jitter(INTERVAL * count**2 // 2 + 1))
    status["startFailure"] = {
        "consecutiveFailCount": count,
        "lastFailedVMIUID": uid(run.vmi),
        "retryAfterTimestamp": timestamp(run.world.now + timedelta(seconds=wait)),
    }

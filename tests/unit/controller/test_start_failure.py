"""Starts that fail before the guest ran are tried again, ever later."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anyvisor.controller.conditions import timestamp
from anyvisor.controller.vm.start_failure import backoff_left, delay, sync_start_failure
from anyvisor.controller.vm.world import VmPass, VmWorld, begin

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def vmi(phase: str, *passed: str, uid: str = "i1") -> Json:
    times = [{"phase": one, "phaseTransitionTimestamp": timestamp(NOW)} for one in passed]
    status = {"phase": phase, "phaseTransitionTimestamps": times}
    return {"metadata": {"name": "a", "namespace": "d", "uid": uid}, "status": status}


def run(found: Json | None, failure: Json | None = None, strategy: str = "Always", jitter: int = 0) -> VmPass:
    status = {"startFailure": failure} if failure else {}
    vm = {"metadata": {"name": "a"}, "spec": {"runStrategy": strategy}, "status": status}
    return begin(VmWorld(vm=vm, vmi=found, now=NOW, jitter=lambda below: min(jitter, below - 1)), found)


@pytest.mark.parametrize(
    ("failures", "jitter", "seconds"), [(1, 0, 10), (1, 5, 15), (2, 0, 40), (5, 0, 250), (6, 0, 300), (1000, 9, 300)]
)
def test_the_delay_grows_to_its_limit(failures: int, jitter: int, seconds: int) -> None:
    assert delay(failures, jitter) == seconds


def test_each_failed_instance_counts_once() -> None:
    first = run(vmi("Failed"))
    sync_start_failure(first)
    failure = first.vm["status"]["startFailure"]
    assert failure == {
        "consecutiveFailCount": 1,
        "lastFailedVMIUID": "i1",
        "retryAfterTimestamp": timestamp(NOW + timedelta(seconds=10)),
    }
    again = run(vmi("Failed"), failure)
    sync_start_failure(again)
    assert again.vm["status"]["startFailure"] == failure
    other = run(vmi("Failed", uid="i2"), failure)
    sync_start_failure(other)
    assert other.vm["status"]["startFailure"]["consecutiveFailCount"] == 2


def test_the_jitter_is_at_most_half_the_delay() -> None:
    failed = run(vmi("Failed"), {"consecutiveFailCount": 1, "lastFailedVMIUID": "i0"}, jitter=1000)
    sync_start_failure(failed)
    assert failed.vm["status"]["startFailure"]["retryAfterTimestamp"] == timestamp(NOW + timedelta(seconds=60))


@pytest.mark.parametrize(
    ("found", "strategy"),
    [
        (vmi("Running", "Scheduled", "Running"), "Always"),
        (vmi("Failed", "Running"), "Always"),
        (vmi("Failed"), "Halted"),
        (None, "Manual"),
    ],
)
def test_the_count_ends_when_the_guest_ran_or_nobody_would_try_again(found: Json | None, strategy: str) -> None:
    passed = run(found, {"consecutiveFailCount": 3, "lastFailedVMIUID": "i0"}, strategy)
    sync_start_failure(passed)
    assert "startFailure" not in passed.vm["status"]


@pytest.mark.parametrize(
    ("retry", "left"),
    [(NOW + timedelta(seconds=7), 7), (NOW, 0), (NOW - timedelta(days=1), 0), (None, 0)],
)
def test_time_left(retry: datetime | None, left: int) -> None:
    failure = {"retryAfterTimestamp": timestamp(retry)} if retry else {"consecutiveFailCount": 1}
    assert backoff_left(run(None, failure)) == left

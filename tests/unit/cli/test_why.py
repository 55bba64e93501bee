"""The one sentence: a table over everything between the object and the VMM."""

from typing import Any

import pytest

from anyvisor.cli.why import Chain, explain


def vm(strategy: str = "Always", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"runStrategy": strategy}, "status": status}


def vmi(phase: str = "", *conditions: dict[str, str], **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", "uid": "u"},
        "status": {"phase": phase, "conditions": list(conditions), "nodeName": "node-1", **status},
    }


def condition(kind: str, status: str, message: str = "", reason: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "message": message, "reason": reason}


WARNING = {"type": "Warning", "message": "image demo is not here", "lastTimestamp": "2026-01-01T00:00:00Z"}
UNSCHEDULABLE = {
    "metadata": {"name": "p"},
    "status": {"conditions": [condition("PodScheduled", "False", "0/1 nodes are available: 1 Insufficient memory.")]},
}
BROKEN = {
    "metadata": {"name": "d"},
    "status": {"phase": "ImportInProgress", "conditions": [condition("Running", "False", "answers 404", "Error")]},
}
FILLING = {"metadata": {"name": "d"}, "status": {"phase": "ImportInProgress", "progress": "42.0%"}}
CASES = [
    (Chain("a", vm(), disks=[FILLING]), "datavolume/d", "waits for its disk d: ImportInProgress, 42.0% done"),
    (Chain("a", vm(), disks=[BROKEN]), "datavolume/d", "answers 404"),
    (Chain("a", vm("Halted")), "vm/a", "anyvisor start a"),
    (Chain("a", vm(), vmi("Running")), "nothing", "runs on node node-1"),
    (Chain("a", vm(), vmi("Running", condition("Paused", "True", "an I/O error: disk full"))), "vmi/a", "disk full"),
    (Chain("a", vm(), vmi("Scheduled", condition("Synchronized", "False", "no such image"))), "vmi/a", "no such image"),
    (Chain("a", vm(), vmi("Scheduling"), [UNSCHEDULABLE]), "pod/p", "Insufficient memory"),
    (Chain("a", vm(), vmi("Failed"), events=[WARNING]), "vmi/a", "image demo is not here"),
    (Chain("a", vm(startFailure={"consecutiveFailCount": 3}), events=[WARNING]), "vm/a", "failed 3 times"),
    (Chain("a", vm(), events=[WARNING]), "vm/a", "image demo is not here"),
    (Chain("a", vm(), vmi("Scheduling")), "vmi/a", "is starting: Scheduling"),
    (Chain("a", {**vm(), "metadata": {"name": "a", "deletionTimestamp": "t", "finalizers": ["x"]}}), "vm/a", "x"),
]


@pytest.mark.parametrize(("chain", "at", "words"), CASES)
def test_the_first_obstacle_is_told(chain: Chain, at: str, words: str) -> None:
    reason = explain(chain)
    assert reason.at == at
    assert words in reason.sentence
    assert reason.sentence.endswith(".")
    assert "\n" not in reason.sentence

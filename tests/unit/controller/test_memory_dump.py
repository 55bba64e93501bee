"""Memory dumps that nobody makes end with a sentence."""

from datetime import UTC, datetime
from typing import Any

import pytest

from anyvisor.controller.vm.memory_dump import end_request
from anyvisor.controller.vm.world import VmPass, VmWorld, begin

Json = dict[str, Any]


def run(request: Json) -> VmPass:
    vm = {"metadata": {"name": "a"}, "spec": {}, "status": {"memoryDumpRequest": request}}
    world = VmWorld(vm=vm, vmi=None, now=datetime(2026, 6, 1, tzinfo=UTC), jitter=lambda _: 0)
    ended = begin(world, None)
    end_request(ended)
    return ended


@pytest.mark.parametrize("phase", ["", "Associating", "InProgress"])
def test_a_waiting_request_fails_and_says_why(phase: str) -> None:
    ended = run({"claimName": "c", "phase": phase})
    request = ended.vm["status"]["memoryDumpRequest"]
    assert (request["claimName"], request["phase"]) == ("c", "Failed")
    assert "not served" in request["message"]
    assert [event.reason for event in ended.draft.events] == ["MemoryDumpError"]


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
def test_an_ended_request_is_left_alone(phase: str) -> None:
    request = {"claimName": "c", "phase": phase}
    ended = run(request)
    assert ended.vm["status"]["memoryDumpRequest"] == request
    assert ended.draft.events == []


def test_a_request_that_was_taken_back_is_forgotten() -> None:
    assert "memoryDumpRequest" not in run({"claimName": "c", "phase": "Dissociating", "remove": True}).vm["status"]

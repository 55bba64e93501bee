"""The kit's parts for what every driver needs again: facts, drafts, views, streams."""

import asyncio
import re
from pathlib import Path

import pytest

from anyvisor.hri.errors import InvalidRequest, MachineNotFound, NotImplementedByDriver, Refused, VmmFailed
from anyvisor.hri.kit import FINAL_PHASES, Intent, MachineContext, View, facts, streams
from anyvisor.hri.kit.drafts import LAST_NUMBER, Draft, check_device_ids
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.kit.facts import Finder, VmmFacts
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Machine, Nic
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.stream_pb2 import (
    STREAM_KIND_CONSOLE,
    STREAM_KIND_DISPLAY,
    STREAM_KIND_VSOCK,
    OpenStreamRequest,
    StreamKind,
)
from anyvisor.hri.v1.types_pb2 import END_REASON_FORCED, PHASE_CRASHED, PHASE_RUNNING, PHASE_STOPPED, Endpoint


class Found(VmmFacts, frozen=True):
    cpus: int = 0


def machine() -> MachineContext:
    return MachineContext("m1", 1, EventLog("boot"))


# Facts


@pytest.mark.parametrize(
    ("found", "health", "reason"),
    [
        (VmmFacts(installed=True), NodeFacts.HEALTH_HEALTHY, "Found"),
        (VmmFacts(installed=True, problem="too old"), NodeFacts.HEALTH_UNHEALTHY, "NotUsable"),
        (VmmFacts(problem="not there"), NodeFacts.HEALTH_UNDETECTED, "NotInstalled"),
    ],
)
def test_health_follows_from_the_facts(found: VmmFacts, health: NodeFacts.Health, reason: str) -> None:
    assert (found.health, found.condition("X").reason) == (health, reason)
    assert found.condition("X").status == (not found.problem)


async def test_facts_are_found_once_for_a_key_and_trouble_each_time(tmp_path: Path) -> None:
    cache, runs = tmp_path / "facts.json", 0

    async def find() -> Found:
        nonlocal runs
        runs += 1
        return Found(cpus=runs, problem="" if runs > 1 else "busy")

    assert (await facts.kept(Found, cache, "a", find)).problem
    assert await facts.kept(Found, cache, "a", find) == Found(cpus=2)
    assert await facts.kept(Found, cache, "a", find) == Found(cpus=2)
    assert await facts.kept(Found, cache, "b", find) == Found(cpus=3)


def test_key_changes_with_the_binary(tmp_path: Path) -> None:
    program = tmp_path / "vmm"
    missing = facts.key(1, str(program))
    program.write_text("1")
    assert len({missing, facts.key(1, str(program)), facts.key(2, str(program)), facts.key(1, str(program), "x")}) == 4


async def test_finder_looks_again_when_the_key_changes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "RECHECK_SECONDS", 0.01)
    answers = {"a": Found(version="1", problem="broken"), "b": Found(version="2")}
    asked: list[str] = []
    now = "a"

    async def find() -> Found:
        asked.append(now)
        return answers[now]

    finder = Finder(lambda: now, find)
    assert finder.version == ""
    with pytest.raises(VmmFailed, match="broken"):
        await finder.usable()
    stream = finder.node_facts(lambda found: NodeFacts(vmm_version=found.version))
    assert (await anext(stream)).vmm_version == "1"
    now = "b"
    assert (await asyncio.wait_for(anext(stream), 10)).vmm_version == "2"
    assert await finder.usable() == answers["b"]
    assert asked == ["a", "b"]
    await stream.aclose()


# Drafts


def test_a_handle_has_one_number_and_numbers_are_bounded() -> None:
    draft = Draft()
    assert [draft.number(handle) for handle in ("a", "b", "a")] == [3, 4, 3]
    assert draft.reopened("b") == "/proc/self/fd/4"
    assert [(slot.handle, slot.reopened) for slot in draft.slots] == [("a", False), ("b", True)]
    with pytest.raises(InvalidRequest):
        draft.number("")
    with pytest.raises(Refused, match="descriptors"):
        for index in range(LAST_NUMBER):
            draft.number(f"more/{index}")


def test_all_refusals_are_told_and_the_first_is_named() -> None:
    draft = Draft()
    draft.note("CHANGED", "clock", "it runs in UTC")
    draft.check()
    draft.refuse("CAP_NO", "disks[0].bus", "there is no usb bus")
    draft.refuse("CAP_NO", "nics[0].model", "there is no such model")
    with pytest.raises(Refused, match=r"^disks\[0\]\.bus: there is no usb bus \(and 1 more\)$") as caught:
        draft.check()
    assert [each.field for each in caught.value.findings] == ["disks[0].bus", "nics[0].model"]


@pytest.mark.parametrize(("disk", "nic", "problem"), [("a", "a", "the same id"), ("a b", "c", "must be letters")])
def test_device_ids(disk: str, nic: str, problem: str) -> None:
    allowed = re.compile("[a-z]+")
    check_device_ids(Machine(disks=[Disk(id="x")], nics=[Nic(id="y")]), allowed, "letters")
    with pytest.raises(InvalidRequest, match=problem):
        check_device_ids(Machine(disks=[Disk(id=disk)], nics=[Nic(id=nic)]), allowed, "letters")


# Views and sessions


def test_a_final_view_stays() -> None:
    shown = machine()
    shown.show(View(PHASE_RUNNING))
    assert (shown.view, shown.view.final) == (View(PHASE_RUNNING), False)
    shown.show(View(PHASE_STOPPED, END_REASON_FORCED))
    shown.show(View(PHASE_CRASHED))
    assert (shown.view.phase, shown.view.end_reason) == (PHASE_STOPPED, END_REASON_FORCED)
    assert shown.view.final
    assert PHASE_RUNNING not in FINAL_PHASES


def test_session_of_the_wanted_kind() -> None:
    held = machine()
    with pytest.raises(VmmFailed, match="adopt it first"):
        held.session_of(Intent)
    held.session = Intent(stop=True)
    assert held.session_of(Intent).stop


# Streams


def test_a_stream_is_an_endpoint() -> None:
    served = machine()
    with served.change() as state:
        for device in ("one", "two"):
            state.endpoints.add(id=f"console/{device}", purpose=Endpoint.PURPOSE_CONSOLE, device_id=device)

    def opened(kind: StreamKind, device: str = "") -> str:
        request = OpenStreamRequest(kind=kind, device_id=device)
        return streams.endpoint_of(served, request, streams.CONSOLE, streams.DISPLAY).endpoint_id

    assert opened(STREAM_KIND_CONSOLE) == "console/one"
    assert opened(STREAM_KIND_CONSOLE, "two") == "console/two"
    with pytest.raises(MachineNotFound, match="no console 'three'"):
        opened(STREAM_KIND_CONSOLE, "three")
    with pytest.raises(MachineNotFound, match="no display"):
        opened(STREAM_KIND_DISPLAY)
    with pytest.raises(NotImplementedByDriver, match="consoles and displays"):
        opened(STREAM_KIND_VSOCK)

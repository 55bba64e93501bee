"""Helpers of a machine, as real processes of a real session."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from anyvisor.agent import helpers, processes
from anyvisor.agent.helpers import Helpers
from anyvisor.agent.records import HelperRecord, Record, Stage
from anyvisor.hri.v1.machine_pb2 import Helper

SLEEP = "/usr/bin/sleep"
LEADER = f"{SLEEP} 1000 & echo $!; exec sleep 1000"


@dataclass
class Machine:
    """A session whose leader has one child, as a launcher leaves it."""

    leader: "subprocess.Popen[str]"
    helper: int
    record: Record
    lost: list[HelperRecord]

    def kill(self) -> None:
        os.kill(self.helper, signal.SIGKILL)


def record_of(pid: int) -> Record:
    return Record(
        machine_id="m",
        namespace="ns",
        name="n",
        pod_uid="p",
        pod_name="pod",
        boot_id=processes.boot_id(),
        pid=pid,
        start_time=processes.start_time(pid) or 0,
        driver="d",
        driver_version="1",
        hri_minor=1,
        plan_digest="",
        generation=1,
        stage=Stage.HANDING_OVER,
        helpers=(HelperRecord("sleeper", SLEEP, Helper.ON_EXIT_IGNORE),),
    )


@pytest.fixture
def machine() -> Iterator[Machine]:
    leader = subprocess.Popen(["/bin/sh", "-c", LEADER], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert leader.stdout is not None
    helper = int(leader.stdout.readline())
    deadline = time.monotonic() + 5
    while not Path(f"/proc/{helper}/cmdline").read_bytes().startswith(SLEEP.encode()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    yield Machine(leader, helper, record_of(leader.pid), [])
    for pid in (helper, leader.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    leader.communicate()


def of(machine: Machine) -> Helpers:
    return Helpers(lambda: machine.record, machine.lost.append)


async def told(machine: Machine) -> None:
    async with asyncio.timeout(5):
        while not machine.lost:
            await asyncio.sleep(0.01)


async def test_one_that_ends_beside_its_vmm_is_told(machine: Machine) -> None:
    followed = of(machine)
    await followed.follow()
    assert machine.lost == []
    machine.kill()
    await told(machine)
    assert machine.lost == list(machine.record.helpers)
    followed.close()


async def test_they_are_found_again_after_a_restart(machine: Machine) -> None:
    first = of(machine)
    await first.follow()
    first.close()
    again = of(machine)
    await again.follow()
    machine.kill()
    await told(machine)
    again.close()


async def test_one_is_known_before_it_becomes_what_it_will_be(machine: Machine) -> None:
    """`/usr/bin/sleep 1000` stands here for a wrapper whose words name the program that it will execute."""
    becoming = HelperRecord("wrapped", "1000", Helper.ON_EXIT_IGNORE)
    machine.record = msgspec.structs.replace(machine.record, helpers=(becoming,))
    followed = of(machine)
    await followed.follow()
    assert machine.lost == []
    machine.kill()
    await told(machine)
    assert machine.lost == [becoming]
    followed.close()


async def test_one_that_never_ran_is_told(machine: Machine) -> None:
    missing = HelperRecord("other", "/usr/bin/other", Helper.ON_EXIT_FATAL)
    machine.record = msgspec.structs.replace(machine.record, helpers=(*machine.record.helpers, missing))
    followed = of(machine)
    await followed.follow()
    assert machine.lost == [missing]
    assert helpers.is_fatal(missing)
    assert not helpers.is_fatal(machine.record.helpers[0])
    followed.close()


async def test_the_machine_has_ended_when_they_have(machine: Machine) -> None:
    followed = of(machine)
    await followed.follow()
    machine.leader.kill()
    asyncio.get_running_loop().call_later(0.2, machine.kill)
    began = time.monotonic()
    await followed.finished()
    assert 0.15 < time.monotonic() - began < helpers.FLUSH_SECONDS


async def test_one_that_stays_is_killed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "FLUSH_SECONDS", 0.1)
    pidfd = os.pidfd_open(machine.helper)
    followed = of(machine)
    await followed.follow()
    machine.leader.kill()
    await followed.finished()
    assert processes.has_ended(pidfd)
    os.close(pidfd)


async def test_one_that_was_never_seen_beside_its_vmm_is_waited_for_and_not_killed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers, "FLUSH_SECONDS", 0.1)
    pidfd = os.pidfd_open(machine.helper)
    await of(machine).finished()
    assert not processes.has_ended(pidfd)
    os.close(pidfd)

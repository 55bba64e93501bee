"""The driver against the test's own VMM: everything of the suite, and faults that the real one shows only rarely."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from anyvisor.hri.errors import DeadlineExceeded, DriverUnavailable, HriError, Refused, VmmFailed
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_INTERNAL_ERROR,
    END_REASON_PANIC,
    END_REASON_VMM_EXITED,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_PAUSED,
    PHASE_RUNNING,
)
from tests.contract.cloud_hypervisor.program import install, order
from tests.contract.cloud_hypervisor.rig import Rig, machine_of, running_rig
from tests.contract.cloud_hypervisor.suite import DriverSuite, boot, gone, kernel


@pytest.fixture
async def rig(rundir: Path) -> AsyncGenerator[Rig]:
    """A driver in a process of its own, the test as its agent, and a VMM that needs no hardware."""
    async with running_rig(rundir, install(rundir)) as running:
        yield running


async def node_facts(rig: Rig) -> NodeFacts:
    async with contextlib.aclosing(rig.client.watch_node()) as found:
        return await anext(found)


class TestDriver(DriverSuite):
    """Every test of the suite."""


async def test_node_facts(rundir: Path) -> None:
    async with running_rig(rundir, install(rundir)) as rig:
        facts = await node_facts(rig)
    assert (facts.health, facts.vmm_version) == (NodeFacts.HEALTH_HEALTHY, "53.0")
    assert [(each.opens, each.runs_guest, each.message) for each in facts.accelerators] == [(True, True, "")]
    assert list(facts.withdrawn_capabilities) == ["boot.uefi"]


@pytest.mark.parametrize(
    ("knobs", "runs", "said"), [({"kvm": "dies"}, False, "does not run what a kernel does first"), ({}, True, "")]
)
async def test_kvm_that_opens_need_not_run(rundir: Path, knobs: dict[str, str], runs: bool, said: str) -> None:
    async with running_rig(rundir, install(rundir, **knobs)) as rig:
        (fact,) = (await node_facts(rig)).accelerators
        assert (fact.opens, fact.runs_guest) == (True, runs)
        assert said in fact.message
        prepared = await rig.client.prepare(machine_of("m1"), [], generation=1)
        assert [finding.code for finding in prepared.findings] == ([] if runs else ["ACCELERATOR_DOUBTFUL"])


async def test_missing_program_is_undetected(rundir: Path) -> None:
    async with running_rig(rundir, str(rundir / "nothing")) as rig:
        facts = await node_facts(rig)
        assert facts.health == NodeFacts.HEALTH_UNDETECTED
        assert not (await rig.client.probe()).ready
        with pytest.raises(VmmFailed, match="install Cloud Hypervisor"):
            await rig.client.prepare(machine_of("m1"), [], generation=1)


async def test_old_program_is_unhealthy(rundir: Path) -> None:
    async with running_rig(rundir, install(rundir, version="52.0")) as rig:
        facts = await node_facts(rig)
        assert facts.health == NodeFacts.HEALTH_UNHEALTHY
        assert "v52.0 is too old; install v53.0 or later" in facts.conditions[0].message


async def test_vmm_that_dies_during_the_boot(rig: Rig) -> None:
    order(rig.binary, die=["vm.boot"])
    guest = await rig.launch(machine_of("m1"), {"kernel": kernel()})
    with pytest.raises(VmmFailed, match="ended before the guest ran"):
        await rig.start(guest)
    state = await rig.until(guest, gone)
    assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_VMM_EXITED)
    assert await guest.ended() == 1


@pytest.mark.parametrize("fault", ["garbage", "refuse"])
async def test_channel_that_is_broken_is_given_up_and_adopted_anew(rig: Rig, fault: str) -> None:
    order(rig.binary, **{fault: ["vm.pause"]})
    guest = await boot(rig)
    with pytest.raises(HriError):
        await rig.done(await rig.client.pause("m1", generation=1))
    assert guest.process.poll() is None
    assert rig.states["m1"].phase not in (PHASE_CRASHED, PHASE_LOST)
    state = await rig.adopt(guest)
    assert state.phase in (PHASE_RUNNING, PHASE_PAUSED)
    await rig.done(await rig.client.resume("m1", generation=1))
    guest.log = ""
    await guest.said("ANYVISOR t=")


async def test_control_loop_that_died(rig: Rig) -> None:
    order(rig.binary, loop_dead=["vm.pause"])
    guest = await boot(rig)
    with pytest.raises(Refused, match="receiving on a closed channel"):
        await rig.done(await rig.client.pause("m1", generation=1))
    state = await rig.until(guest, gone)
    assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_INTERNAL_ERROR)


async def test_slow_answer_is_no_dead_vmm(rig: Rig) -> None:
    order(rig.binary, slow={"vm.pause": 2.0})
    guest = await boot(rig)
    operation = await rig.client.pause("m1", generation=1)
    assert operation.state == operation.STATE_RUNNING
    await rig.client.cancel_operation(operation.id)
    state = await rig.client.inspect("m1")  # waits for its turn: the abandoned call is answered first
    assert state.phase != PHASE_CRASHED
    await rig.done(await rig.client.resume("m1", generation=1))
    guest.log = ""
    await guest.said("ANYVISOR t=")


async def test_guest_that_the_vmm_cannot_run_any_further(rig: Rig) -> None:
    guest = await boot(rig)
    await guest.type("internal-error\n")
    state = await rig.until(guest, gone)
    assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_INTERNAL_ERROR)
    assert await guest.ended() == 0  # it says nothing about the guest
    assert "VcpuRun" in guest.errors


async def test_guest_that_panics(rig: Rig) -> None:
    guest = await boot(rig)
    await guest.type("panic\n")
    state = await rig.until(guest, gone)
    assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_PANIC)


async def test_machine_that_is_too_large_to_tell(rig: Rig) -> None:
    machine = machine_of("m1")
    machine.identity.oem_strings.extend(["x" * 256] * 210)
    guest = await rig.launch(machine, {"kernel": kernel()})
    with pytest.raises(VmmFailed, match="51200 are allowed"):
        await rig.start(guest)


async def test_event_stream_that_nobody_read_is_made_up_by_asking(rig: Rig) -> None:
    guest = await boot(rig)
    await rig.kill_driver()
    pipe = guest.path("events")
    with pipe.open("wb", buffering=0) as stream:
        stream.write(b'"properties": null\n}\n\n{\n  "timestamp": {\n{\n  "source": 7\n}\n' + b"\0" * 30000)
    await rig.start_driver()
    state = await rig.adopt(guest)
    assert state.phase == PHASE_RUNNING
    await guest.type("off\n")
    await rig.until(guest, gone)


async def test_a_call_is_bounded(rig: Rig) -> None:
    order(rig.binary, slow={"vm.info": 40.0})
    guest = await rig.launch(machine_of("m1"), {"kernel": kernel()})
    began = asyncio.get_running_loop().time()
    with pytest.raises((VmmFailed, DeadlineExceeded, DriverUnavailable), match="no answer within 10 s"):
        await rig.start(guest)
    assert asyncio.get_running_loop().time() - began < 20

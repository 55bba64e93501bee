"""What the kit does for every driver, over the wire."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from anyvisor.hri.client import HriClient, outcome
from anyvisor.hri.errors import (
    DeadlineExceeded,
    DriverFault,
    HriError,
    InvalidRequest,
    LimitReached,
    MachineNotFound,
    OperationCancelled,
    OperationConflict,
    Refused,
)
from anyvisor.hri.fake.faults import Faults
from anyvisor.hri.kit.core import KitLimits
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, Event, SetMemory
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Machine, Memory, Nic
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_FORCED,
    END_REASON_PANIC,
    END_REASON_REQUESTED_SHUTDOWN,
    PAUSE_REASON_USER,
    PHASE_CRASHED,
    PHASE_PAUSED,
    PHASE_PREPARED,
    PHASE_RUNNING,
    PHASE_STOPPED,
    Operation,
)

Start = Callable[..., Awaitable[Any]]


def machine(name: str = "m1", **more: Any) -> Machine:
    return Machine(id=name, memory=Memory(size_bytes=1 << 27, max_bytes=1 << 28), **more)


async def running(client: HriClient, name: str = "m1") -> None:
    await client.prepare(machine(name), [], generation=1)
    assert (await client.start(name, generation=1)).state == Operation.STATE_DONE


async def test_life_of_a_machine(serve: Start):
    served = await serve()
    client = served.client
    assert (await client.connect()).driver == "fake.anyvisor.io"
    spec = machine(disks=[Disk(id="root")], nics=[Nic(id="net0")])
    planned = await client.prepare(spec, ["disk.bus"], generation=1)
    assert [(d.id, d.address) for d in planned.devices] == [("root", "0000:01:00.0"), ("net0", "0000:02:00.0")]
    assert (await client.inspect("m1")).phase == PHASE_PREPARED
    await client.start("m1", generation=1)
    await client.pause("m1", generation=1)
    paused = await client.inspect("m1")
    assert (paused.phase, paused.pause_reason) == (PHASE_PAUSED, PAUSE_REASON_USER)
    await client.resume("m1", generation=1)
    change = ApplyRequest(set_memory=SetMemory(size_bytes=1 << 28))
    assert outcome(await client.apply("m1", change, generation=2)) is None
    state = await client.inspect("m1")
    assert (state.phase, state.memory_bytes, state.generation) == (PHASE_RUNNING, 1 << 28, 2)
    await client.stop("m1", generation=2)
    last = await client.destroy("m1", generation=2)
    assert (last.phase, last.end_reason) == (PHASE_STOPPED, END_REASON_REQUESTED_SHUTDOWN)
    with pytest.raises(MachineNotFound):
        await client.inspect("m1")


async def test_a_replay_gives_the_first_result_and_acts_once(serve: Start):
    served = await serve()
    first = await served.client.prepare(machine(), [], generation=1, operation_id="a")
    again = await served.client.prepare(machine(), [], generation=1, operation_id="a")
    assert first == again
    one = await served.client.start("m1", generation=1, operation_id="b")
    two = await served.client.start("m1", generation=1, operation_id="b")
    assert one == two
    assert served.driver._calls["prepare"] == served.driver._calls["start"] == 1


async def test_another_content_under_one_operation_id_is_refused(serve: Start):
    served = await serve()
    await served.client.prepare(machine(), [], generation=1, operation_id="a")
    with pytest.raises(OperationConflict, match="other content"):
        await served.client.prepare(machine(), [], generation=2, operation_id="a")
    with pytest.raises(OperationConflict, match="other content"):
        await served.client.start("m1", generation=1, operation_id="a")


async def test_a_machine_is_prepared_once(serve: Start):
    served = await serve()
    await served.client.prepare(machine(), [], generation=1)
    with pytest.raises(OperationConflict, match="exists already"):
        await served.client.prepare(machine(), [], generation=1)


async def test_an_older_generation_is_refused_with_both_numbers(serve: Start):
    served = await serve()
    await served.client.prepare(machine(), [], generation=5)
    with pytest.raises(Refused) as caught:
        await served.client.start("m1", generation=4)
    assert caught.value.code == "GENERATION_OLD"
    assert (caught.value.findings[0].have, caught.value.findings[0].want) == ("5", "4")
    assert (await served.client.inspect("m1")).phase == PHASE_PREPARED


@pytest.mark.parametrize("name", ["", "UPPER", "a" * 64, "-a", "a/b", "a\n"])
async def test_a_machine_id_has_a_form(serve: Start, name: str):
    served = await serve()
    with pytest.raises(InvalidRequest, match="machine_id"):
        await served.client.destroy(name, generation=1)


@pytest.mark.parametrize("minor", [0, 2, 99])
async def test_a_minor_out_of_range_is_refused(serve: Start, minor: int):
    served = await serve()
    with pytest.raises(Refused) as caught:
        await served.client.prepare(machine(), [], generation=1, minor=minor)
    assert caught.value.code == "SKEW"


async def test_what_the_proto_does_not_know_is_refused(serve: Start):
    served = await serve()
    spec = machine(disks=[Disk(id="a")])
    spec.disks[0].MergeFromString(b"\xfa\x3e\x01x")  # field 1007, a string
    with pytest.raises(Refused) as caught:
        await served.client.prepare(spec, [], generation=1)
    assert (caught.value.code, caught.value.findings[0].field) == ("FIELD_UNKNOWN", "disks[0]")
    spec = machine(disks=[Disk(id="a", bus=77)])  # pyright: ignore[reportArgumentType] - an enum value of the future
    with pytest.raises(Refused) as caught:
        await served.client.prepare(spec, [], generation=1)
    assert (caught.value.code, caught.value.findings[0].field) == ("VALUE_UNKNOWN", "disks[0].bus")
    assert len(served.server.core.machines) == 0


async def test_needs_that_are_not_confirmed_are_an_error(serve: Start):
    served = await serve()
    with pytest.raises(Refused, match=r"x\.y"):
        await served.client.prepare(machine(), ["disk.bus", "x.y"], generation=1)


@pytest.mark.parametrize(
    ("method", "phase"),
    [("resume", "PREPARED"), ("pause", "PREPARED"), ("reset", "PREPARED"), ("stop", "PREPARED")],
)
async def test_a_call_in_the_wrong_phase_fails_and_says_so(serve: Start, method: str, phase: str):
    served = await serve()
    await served.client.prepare(machine(), [], generation=1)
    failed = outcome(await getattr(served.client, method)("m1", generation=1))
    assert isinstance(failed, Refused)
    assert (failed.code, failed.findings[0].have) == ("WRONG_PHASE", phase)


async def test_stop_of_an_ended_machine_is_done(serve: Start):
    served = await serve()
    await running(served.client)
    served.driver.guests["m1"].end(END_REASON_PANIC)
    assert outcome(await served.client.stop("m1", generation=1, force=True)) is None
    state = await served.client.inspect("m1")
    assert (state.phase, state.end_reason) == (PHASE_CRASHED, END_REASON_PANIC)


async def test_unknown_machines(serve: Start):
    client = (await serve()).client
    for call in (client.start, client.stop, client.pause, client.resume, client.reset):
        with pytest.raises(MachineNotFound, match="ghost"):
            await call("ghost", generation=1)
    with pytest.raises(MachineNotFound):
        await client.inspect("ghost")
    assert (await client.destroy("ghost", generation=1)).phase == 0


async def test_a_slow_operation_answers_running_and_ends_as_an_event(serve: Start):
    served = await serve(Faults(slow={"start": 0.3}), KitLimits(answer_within=0.05))
    await served.client.prepare(machine(), [], generation=1)
    async with aclosing(served.client.events()) as events:
        answer = await served.client.start("m1", generation=1, operation_id="op")
        assert answer.state == Operation.STATE_RUNNING
        async for event in events:
            if event.kind == Event.KIND_OPERATION:
                assert (event.operation.id, event.operation.state) == ("op", Operation.STATE_DONE)
                break
    assert (await served.client.get_operation("op")).state == Operation.STATE_DONE


async def test_a_hanging_operation_is_cancelled_by_id(serve: Start):
    served = await serve(Faults(hang=frozenset({"start"})), KitLimits(answer_within=0.05))
    await served.client.prepare(machine(), [], generation=1)
    await served.client.start("m1", generation=1, operation_id="op")
    cancelled = await served.client.cancel_operation("op")
    assert cancelled.state == Operation.STATE_CANCELLED
    assert isinstance(outcome(cancelled), OperationCancelled)


@pytest.mark.parametrize("interrupt", ["destroy", "stop"])
async def test_destroy_and_forced_stop_end_what_hangs(serve: Start, interrupt: str):
    served = await serve(Faults(hang=frozenset({"start"})), KitLimits(answer_within=0.05))
    await served.client.prepare(machine(), [], generation=1)
    await served.client.start("m1", generation=1, operation_id="op")
    if interrupt == "destroy":
        await served.client.destroy("m1", generation=1)
    else:
        await served.client.stop("m1", generation=1, force=True)
    assert (await served.client.get_operation("op")).state == Operation.STATE_CANCELLED


async def test_an_operation_without_outcome_is_abandoned(serve: Start):
    served = await serve(Faults(hang=frozenset({"start"})), KitLimits(operation=0.1))
    await served.client.prepare(machine(), [], generation=1)
    failed = outcome(await served.client.start("m1", generation=1))
    assert isinstance(failed, DeadlineExceeded)


async def test_a_missed_deadline_of_a_call_leaves_its_operation_alive(serve: Start):
    served = await serve(Faults(slow={"prepare": 0.3}))
    request_id = "op"
    with pytest.raises(DeadlineExceeded):
        await served.client._call(served.client._machine.Prepare, _prepare_request(served.client, request_id), 0.05)
    answer = await served.client._call(served.client._machine.Prepare, _prepare_request(served.client, request_id), 5)
    assert answer.handle
    assert served.driver._calls["prepare"] == 1


def _prepare_request(client: HriClient, operation_id: str) -> Any:
    from anyvisor.hri.v1.machine_pb2 import PrepareRequest

    return PrepareRequest(mutation=client._mutation("m1", 1, None, operation_id), machine=machine())


async def test_operations_of_one_machine_run_in_order(serve: Start):
    served = await serve(Faults(slow={"pause": 0.1}))
    await running(served.client)
    await asyncio.gather(served.client.pause("m1", generation=1), served.client.resume("m1", generation=1))
    assert (await served.client.inspect("m1")).phase == PHASE_RUNNING


async def test_operations_of_one_machine_are_bounded(serve: Start):
    served = await serve(Faults(hang=frozenset({"pause"})), KitLimits(answer_within=0.01, queued_per_machine=2))
    await running(served.client)
    await served.client.pause("m1", generation=1)
    await served.client.pause("m1", generation=1)
    with pytest.raises(LimitReached):
        await served.client.pause("m1", generation=1)


async def test_machines_are_bounded(serve: Start):
    served = await serve(limits=KitLimits(machines=1))
    await served.client.prepare(machine("a"), [], generation=1)
    with pytest.raises(LimitReached, match="another node"):
        await served.client.prepare(machine("b"), [], generation=1)


async def test_a_bug_in_the_driver_is_an_outcome(serve: Start, caplog: pytest.LogCaptureFixture):
    served = await serve()
    served.driver._stated = None
    with pytest.raises(DriverFault, match="TypeError"):
        await served.client.prepare(machine(), ["disk.bus"], generation=1)
    served.driver._stated = frozenset({"disk.bus"})
    await served.client.prepare(machine(), ["disk.bus"], generation=1)
    assert "Prepare of machine m1 failed" in caplog.text


async def test_adoption_by_a_new_process(serve: Start):
    old, new = await serve(name="old"), await serve(name="new")
    planned = await old.client.prepare(machine(), [], generation=3)
    await old.client.start("m1", generation=3)
    with pytest.raises(MachineNotFound):
        await new.client.inspect("m1")
    adopted = await new.client.adopt("m1", planned.handle, generation=3)
    assert (adopted.state.phase, adopted.state.generation) == (PHASE_RUNNING, 3)
    again = await new.client.adopt("m1", planned.handle, generation=3)
    assert again.state == adopted.state
    assert new.driver._calls["adopt"] == 1


async def test_an_adoption_that_fails_leaves_nothing(serve: Start):
    served = await serve()
    with pytest.raises(InvalidRequest):
        await served.client.adopt("m1", b"\xff\xff", generation=1)
    with pytest.raises(MachineNotFound):
        await served.client.inspect("m1")


async def test_a_lost_channel_makes_the_next_adoption_reach_the_driver(serve: Start):
    served = await serve()
    planned = await served.client.prepare(machine(), [], generation=1)
    await served.client.start("m1", generation=1)
    await served.client.adopt("m1", planned.handle, generation=1)
    assert served.driver._calls["adopt"] == 0
    served.server.core.machines.get("m1").disconnected()
    await served.client.adopt("m1", planned.handle, generation=1)
    assert served.driver._calls["adopt"] == 1


async def test_a_final_phase_is_never_left(serve: Start):
    served = await serve()
    await running(served.client)
    context = served.server.core.machines.get("m1")
    served.driver.guests["m1"].end(END_REASON_FORCED)
    with context.change() as state:
        state.phase = PHASE_RUNNING
        state.end_reason = END_REASON_PANIC
    assert (context.state.phase, context.state.end_reason) == (PHASE_STOPPED, END_REASON_FORCED)


async def test_a_message_above_the_cap_is_refused_and_the_driver_lives(serve: Start):
    served = await serve()
    huge = machine(name="m1")
    huge.parameters["x"] = "y" * (5 << 20)
    with pytest.raises(HriError) as caught:
        await served.client.prepare(huge, [], generation=1)
    assert caught.value.status in ("RESOURCE_EXHAUSTED", "UNAVAILABLE")
    assert (await served.client.probe()).ready


async def test_a_peer_of_another_uid_is_refused(serve: Start, monkeypatch: pytest.MonkeyPatch):
    served = await serve()
    from anyvisor.hri.peers import PeerPolicy

    async with HriClient(served.hri, served.fd, peers=PeerPolicy(frozenset({os.getuid() + 1}))) as client:
        with pytest.raises(HriError):
            await client.get_info()


async def test_console_of_a_machine(serve: Start):
    import socket

    from anyvisor.hri.v1.stream_pb2 import STREAM_KIND_CONSOLE, OpenStreamRequest

    served = await serve()
    await running(served.client)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        token = await served.client.send_descriptor("console", theirs.fileno())
        request = OpenStreamRequest(machine_id="m1", kind=STREAM_KIND_CONSOLE, token=token)
        opened = await served.client.open_stream(request)
        assert opened.use_token
        loop = asyncio.get_running_loop()
        assert await loop.sock_recv(ours, 100) == b"m1 boot 1\r\n"
        await loop.sock_sendall(ours, b"hello")
        assert await loop.sock_recv(ours, 100) == b"hello"
        await served.client.close_stream("m1", opened.stream_id)
        theirs.close()
        assert await loop.sock_recv(ours, 100) == b""


async def test_stats_of_all_or_of_the_named_machines(serve: Start):
    served = await serve()
    for name in ("m1", "m2"):
        await running(served.client, name)
    told = await served.client.get_stats()
    assert {each.machine_id for each in told} == {"m1", "m2"}
    assert all(each.vcpus[0].run_nanoseconds > 0 for each in told)
    assert [each.machine_id for each in await served.client.get_stats(["m2", "unknown"])] == ["m2"]
    await served.client.stop("m1", generation=1, force=True)
    assert [each.machine_id for each in await served.client.get_stats()] == ["m2"], "one that ended has no counters"


async def test_a_machine_that_does_not_answer_in_time_is_left_out(serve: Start):
    hanging = await serve(Faults(hang=frozenset({"stats"})), KitLimits(stats=0.05), "h")
    await running(hanging.client)
    assert list(await hanging.client.get_stats()) == []

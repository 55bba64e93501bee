"""Core N works with drivers whose newest minor is N-3 to N+3, both ways, for a machine's whole life."""

from pathlib import Path

import pytest

from anyvisor.hri.client import HriClient
from anyvisor.hri.conformance.session import small_machine
from anyvisor.hri.errors import HriError, InvalidRequest, Refused
from anyvisor.hri.fake import faults
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.kit.server import DriverServer
from anyvisor.hri.v1.types_pb2 import PHASE_RUNNING, Operation
from anyvisor.hri.versions import SKEW

CORES = (1, 4, 9)


@pytest.mark.parametrize("core", CORES)
async def test_each_distance(rundir: Path, core: int):
    for newest in range(max(core - SKEW - 1, 1), core + SKEW + 2):
        hri, fd = rundir / f"hri-{newest}", rundir / f"fd-{newest}"
        driver = FakeDriver(faults.parse(f"minor=1-{newest}"))
        async with DriverServer(driver, hri, fd), HriClient(hri, fd, core_minor=core) as client:
            if abs(newest - core) > SKEW:
                older = "the driver" if newest < core else "the core"
                with pytest.raises(Refused, match=f"upgrade {older}"):
                    await client.connect()
                continue
            await client.connect()
            assert client.minor == min(core, newest)
            await life(client)


async def life(client: HriClient) -> None:
    """A machine, spoken to with the negotiated minor."""
    machine = small_machine()
    await client.prepare(machine, ["memory.size"], generation=1)
    assert (await client.start(machine.id, generation=1)).state == Operation.STATE_DONE
    assert (await client.inspect(machine.id)).phase == PHASE_RUNNING
    assert (await client.stop(machine.id, generation=1, force=True)).state == Operation.STATE_DONE
    await client.destroy(machine.id, generation=1)


async def test_a_machine_keeps_its_minor_when_its_driver_is_upgraded(rundir: Path):
    hri, fd = rundir / "hri", rundir / "fd"
    machine = small_machine()
    async with DriverServer(FakeDriver(faults.parse("minor=1-2")), hri, fd), HriClient(hri, fd, core_minor=4) as old:
        await old.connect()
        await old.prepare(machine, [], generation=1)
        await old.start(machine.id, generation=1)
        handle = (await old.inspect(machine.id)).handle
        minor = old.minor
    async with DriverServer(FakeDriver(faults.parse("minor=1-5")), hri, fd), HriClient(hri, fd, core_minor=4) as new:
        await new.connect()
        assert (minor, new.minor) == (2, 4)
        adopted = await new.adopt(machine.id, handle, generation=1, minor=minor)
        assert adopted.state.phase == PHASE_RUNNING
        assert (await new.stop(machine.id, generation=1, minor=minor, force=True)).state == Operation.STATE_DONE


async def test_a_driver_that_dropped_a_minor_says_so_and_leaves_the_machine(rundir: Path):
    hri, fd = rundir / "hri", rundir / "fd"
    machine = small_machine()
    async with DriverServer(FakeDriver(faults.parse("minor=2-4")), hri, fd), HriClient(hri, fd, core_minor=4) as client:
        await client.connect()
        with pytest.raises(HriError) as caught:
            await client.adopt(machine.id, machine.SerializeToString(), generation=1, minor=1)
        assert isinstance(caught.value, InvalidRequest | Refused)
        assert "minor" in caught.value.message

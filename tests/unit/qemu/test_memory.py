"""Memory that comes while the guest runs: the device for it, what it is asked for, and what is refused."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from anyvisor.drivers.qemu import changes
from anyvisor.drivers.qemu.memory import PATH, Added, request
from anyvisor.drivers.qemu.translate import translate
from anyvisor.hri.errors import Refused
from anyvisor.hri.kit import Descriptors, MachineContext
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, SetMemory
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from tests.unit.qemu.peer import Peer
from tests.unit.qemu.test_session import started
from tests.unit.qemu.test_translate import HOST, device, documents, machine, refused, values

MIB = 1 << 20


@pytest.fixture
def context() -> MachineContext:
    return MachineContext("m1", 1, EventLog("boot"))


def growing(most: int = 448 * MIB) -> Machine:
    made = machine()
    made.memory.size_bytes, made.memory.max_bytes = 192 * MIB, most
    return made


def test_a_device_waits_for_more_memory() -> None:
    result = translate(growing(), HOST)
    assert values(result, "m") == [f"size={192 * MIB}B,maxmem={448 * MIB}B"]
    [backend] = [each for each in documents(result, "object") if each["id"] == "memory-more-backend"]
    assert (backend["size"], backend["reserve"]) == (256 * MIB, False)
    made = device(result, "memory-more")
    assert (made["driver"], made["requested-size"], made["memdev"]) == ("virtio-mem-pci", 0, backend["id"])
    assert "maxmem" not in values(translate(growing(0), HOST), "m")[0]


def test_memory_of_the_same_kind_comes() -> None:
    made = growing()
    made.memory.shared = True
    [first, more] = documents(translate(made, HOST), "object")
    assert first["qom-type"] == more["qom-type"] == "memory-backend-memfd"
    assert more["share"] is True


def test_huge_pages_are_taken_before_the_guest_uses_them() -> None:
    made = growing()
    made.memory.page_bytes = 2 * MIB
    result = translate(made, replace(HOST, huge_page_bytes=frozenset({2 * MIB})))
    [_, more] = documents(result, "object")
    assert (more["hugetlb"], more["hugetlbsize"]) == (True, 2 * MIB)
    assert device(result, "memory-more")["prealloc"] is True


def test_the_most_is_a_whole_number_of_steps() -> None:
    assert refused(growing(448 * MIB + 4096)) == {"memory.max_bytes"}


ADDED = Added(size=0, requested=0, most=256 * MIB, block=2 * MIB)


@pytest.mark.parametrize(("wanted", "more"), [(192, 0), (194, 2), (448, 256)])
def test_what_the_device_is_to_have(wanted: int, more: int) -> None:
    assert request(ADDED, 192 * MIB, wanted * MIB) == more * MIB


@pytest.mark.parametrize("wanted", [191 * MIB, 190 * MIB, 193 * MIB, 450 * MIB, 0])
def test_what_it_cannot_have(wanted: int) -> None:
    with pytest.raises(Refused, match="stop and start it with another size"):
        request(ADDED, 192 * MIB, wanted)


def devices(size: int, requested: int) -> list[dict[str, Any]]:
    data = {"id": "memory-more", "size": size, "requested-size": requested, "max-size": 256 * MIB}
    return [{"type": "virtio-mem", "data": {**data, "block-size": 2 * MIB}}]


async def test_the_change_is_made_when_the_guest_has_taken_it(context: MachineContext, peer: Peer) -> None:
    session = await started(context, peer)
    wanted = 64 * MIB
    change = ApplyRequest(set_memory=SetMemory(size_bytes=192 * MIB + wanted))
    changing = asyncio.create_task(changes.apply(session, change, Descriptors({})))
    await peer.answer("query-memory-devices", devices(0, 0))
    await peer.answer("query-memory-size-summary", {"base-memory": 192 * MIB})
    asked = (await peer.answer("qom-set"))["arguments"]
    assert asked == {"path": PATH, "property": "requested-size", "value": wanted}
    await peer.answer("query-memory-devices", devices(0, wanted))
    await peer.event("MEMORY_DEVICE_SIZE_CHANGE", id="memory-more", size=wanted)
    await peer.answer("query-memory-devices", devices(wanted, wanted))
    await peer.answer("query-cpus-fast", [])
    await peer.answer("query-iothreads", [])
    await peer.answer("query-memory-devices", devices(wanted, wanted))
    await peer.answer("query-balloon", {"actual": 192 * MIB})
    await peer.answer("query-status", {"status": "running"})
    await changing
    assert context.state.memory_bytes == 192 * MIB + wanted


async def test_a_guest_that_takes_none_is_told_of(
    context: MachineContext, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MEMORY_SECONDS", 0.05)
    session = await started(context, peer)
    change = ApplyRequest(set_memory=SetMemory(size_bytes=256 * MIB))
    changing = asyncio.create_task(changes.apply(session, change, Descriptors({})))
    await peer.answer("query-memory-devices", devices(0, 0))
    await peer.answer("query-memory-size-summary", {"base-memory": 192 * MIB})
    await peer.answer("qom-set")
    await peer.answer("query-memory-devices", devices(0, 64 * MIB))
    await peer.answer("query-memory-devices", devices(0, 64 * MIB))
    assert (await peer.answer("qom-set"))["arguments"]["value"] == 0
    with pytest.raises(Refused, match="CONFIG_VIRTIO_MEM"):
        await changing

"""What a session makes of the VMM's words, where the order matters."""

import pytest

from anyvisor.drivers.cloud_hypervisor.events import Event
from anyvisor.drivers.cloud_hypervisor.rest import RestClosed
from anyvisor.drivers.cloud_hypervisor.session import Session
from anyvisor.hri.errors import VmmFailed
from anyvisor.hri.kit import MachineContext
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.v1.types_pb2 import (
    END_REASON_GUEST_SHUTDOWN,
    PHASE_RUNNING,
    PHASE_STOPPED,
    DeviceState,
)

RUNNING = {
    "config": {"disks": [{"id": "root"}, {"id": "data"}]},
    "state": "Running",
    "memory_actual_size": 1 << 26,
    "device_tree": {"_virtio-pci-root": {"pci_bdf": "0000:00:05.0", "children": ["root"]}},
}


@pytest.fixture
def session() -> Session:
    machine = MachineContext("m1", 1, EventLog("boot"))
    with machine.change() as state:
        state.phase = PHASE_RUNNING
    return Session(machine, 1 << 26)


def test_guest_that_is_down_to_start_over_has_not_ended(session: Session) -> None:
    session.intent.reboot = session.intent.watched = True
    session._take({"state": "Created"})
    assert session.machine.phase == PHASE_RUNNING
    session.intent.reboot = False
    session._take({"state": "Created"})
    assert (session.machine.phase, session.machine.state.end_reason) == (PHASE_STOPPED, END_REASON_GUEST_SHUTDOWN)
    session._take(RUNNING)
    assert session.machine.phase == PHASE_STOPPED


def test_device_that_the_guest_let_go_of(session: Session) -> None:
    session._take(RUNNING)
    assert session.machine.state.memory_bytes == 1 << 26
    gone = session.removal("data")
    session._on_event(Event("vm", "device-removed", {"id": "data", "bdf": "0000:00:06.0"}))
    assert gone.is_set()
    assert [device.id for device in session.machine.state.devices] == ["root"]
    assert session.machine.state.devices[0].state == DeviceState.STATE_PLUGGED


async def test_without_a_channel_nothing_is_claimed(session: Session) -> None:
    with pytest.raises(VmmFailed, match="adopt it, or kill its VMM"):
        await session.end()
    assert session.machine.phase == PHASE_RUNNING
    with pytest.raises(RestClosed):
        await session.call("vm.pause")

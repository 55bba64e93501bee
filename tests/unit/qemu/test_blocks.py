"""What a running QEMU has of disks."""

from anyvisor.drivers.qemu import blocks
from anyvisor.drivers.qemu.blocks import Blocks
from anyvisor.drivers.qemu.translate.disks import add_live, add_medium
from anyvisor.drivers.qemu.translate.live import LiveDraft, undo
from anyvisor.hri.v1.machine_spec_pb2 import Disk, VolumeHandle

OVERLAY = VolumeHandle(
    layers=[
        VolumeHandle.Layer(handle="top", format=VolumeHandle.Layer.FORMAT_QCOW2),
        VolumeHandle.Layer(handle="base", format=VolumeHandle.Layer.FORMAT_RAW, read_only=True),
    ]
)


def test_the_nodes_of_a_disk_are_closed_from_the_top_down() -> None:
    nodes = ("d100-root-10-f", "d100-root-0-f", "d1-root-0", "d100-root-2", "d100-root-0", "d1000-x-0", "d100-root-10")
    found = Blocks(nodes, {}).of_index(100)
    assert found == ["d100-root-0", "d100-root-0-f", "d100-root-2", "d100-root-10", "d100-root-10-f"]


def test_numbers_are_free_ones() -> None:
    there = Blocks(("d0-a-0", "d100-b-0", "d102-c-0", "#block1"), {1: "", 4: blocks.mark_of(100)})
    assert (there.free_index(), there.free_set(), there.sets_of(100)) == (101, 5, [4])


def test_a_disk_more_is_told_as_it_would_be_at_the_start() -> None:
    draft = LiveDraft(first_set=7)
    add_live(draft, Disk(id="disk.a", kind=Disk.KIND_DISK, bus=Disk.BUS_SCSI, volume=OVERLAY, serial="a"), 100, 3)
    draft.check()
    assert draft.sets == {"base": 7, "top": 8}
    nodes = [arguments["node-name"] for name, arguments in draft.commands if name == "blockdev-add" and arguments]
    assert nodes == ["d100-disk.a-1-f", "d100-disk.a-1", "d100-disk.a-0-f", "d100-disk.a-0"]
    name, device = draft.commands[-1]
    assert name == "device_add"
    assert device is not None
    assert (device["driver"], device["scsi-id"], device["drive"]) == ("scsi-hd", 3, nodes[-1])
    assert [arguments for _, arguments in undo(draft.commands)] == [{"node-name": node} for node in reversed(nodes)]


def test_a_bus_that_takes_no_disk_live_is_refused() -> None:
    draft = LiveDraft()
    add_live(draft, Disk(id="a", kind=Disk.KIND_DISK, bus=Disk.BUS_SATA, volume=OVERLAY), 100, 0)
    assert [finding.field for finding in draft.refusals] == ["attach_disk.bus"]


def test_nobody_writes_to_a_medium_whatever_its_descriptors_allow() -> None:
    draft = LiveDraft()
    assert add_medium(draft, "cd", OVERLAY, 100) == "d100-cd-0"
    nodes = {str(arguments["node-name"]): arguments for _, arguments in draft.commands if arguments}
    assert all(nodes[f"d100-cd-{number}"]["read-only"] is True for number in range(len(OVERLAY.layers)))
    opened = [nodes[f"d100-cd-{number}-f"]["read-only"] for number in range(len(OVERLAY.layers))]
    assert opened == [layer.read_only for layer in OVERLAY.layers]

"""What is to be done for volumes that come and go while the guest runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.agent.volumes import hot
from anyvisor.agent.volumes.hot import Step
from anyvisor.agent.volumes.under_way import Hotplug

HOT: dict[str, Any] = {"name": "v", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}
DISK: dict[str, Any] = {"name": "v", "disk": {"bus": "scsi"}}
DRIVE: dict[str, Any] = {"name": "v", "cdrom": {"bus": "sata"}}
ATTACHED: dict[str, Any] = {"attachPodName": "p", "attachPodUID": "u"}


def vmi(volumes: list[dict[str, Any]], disks: list[dict[str, Any]], phase: str, plugged: Any = ATTACHED) -> Any:
    entry = {"name": "v", "phase": phase, "hotplugVolume": plugged}
    return {"spec": {"volumes": volumes, "domain": {"devices": {"disks": disks}}}, "status": {"volumeStatus": [entry]}}


@pytest.mark.parametrize(
    ("volumes", "disks", "phase", "present", "kind"),
    [
        ([HOT], [DISK], "AttachedToNode", False, "attach"),
        ([HOT], [DISK], "AttachedToNode", True, "present"),
        ([HOT], [DISK], "Ready", True, ""),
        ([HOT], [DISK], "Ready", False, "attach"),
        ([HOT], [], "AttachedToNode", False, ""),
        ([], [], "Ready", True, "detach"),
        ([], [], "Ready", False, "absent"),
        ([], [], "Detaching", False, ""),
        ([], [], "UnMountedFromPod", False, ""),
        ([HOT], [DRIVE], "AttachedToNode", True, "insert"),
        ([HOT], [DRIVE], "Ready", True, ""),
        ([], [DRIVE], "Ready", True, "eject"),
        ([], [DRIVE], "UnMountedFromPod", True, ""),
    ],
)
def test_the_next_step(
    volumes: list[dict[str, Any]], disks: list[dict[str, Any]], phase: str, present: bool, kind: str
) -> None:
    found = hot.steps(vmi(volumes, disks, phase), {"v"} if present else set())
    assert [(step.kind, step.volume) for step in found] == ([(kind, "v")] if kind else [])


def test_nothing_is_attached_before_its_claim_is_on_the_node() -> None:
    assert hot.steps(vmi([HOT], [DISK], "Pending", {"attachPodName": "p"}), set()) == []


def test_volumes_of_the_start_are_let_be() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    obj = vmi([volume], [DISK], "")
    del obj["status"]["volumeStatus"][0]["hotplugVolume"]
    assert hot.steps(obj, {"v"}) == []
    assert hot.hot_names(obj) == frozenset()


def test_disks_are_named_as_a_linux_guest_names_them() -> None:
    disks = [{"name": f"d{i}", "disk": {"bus": "virtio"}} for i in range(28)] + [DISK, DRIVE | {"name": "cd"}]
    named = hot.targets(vmi([], disks, ""))
    assert (named["d0"], named["d25"], named["d26"], named["d27"]) == ("vda", "vdz", "vdaa", "vdab")
    assert (named["v"], named["cd"]) == ("sda", "sdb")


@given(st.integers(0, 2000))
def test_no_two_disks_share_a_name(count: int) -> None:
    disks = [{"name": f"d{i}", "disk": {"bus": "virtio"}} for i in range(count)]
    assert len(set(hot.targets(vmi([], disks, "")).values())) == count


def test_a_volume_is_let_be_until_the_object_shows_its_change() -> None:
    own = Hotplug(unseen={"v": "AttachedToNode", "w": "Ready"})
    own.seen({"v": "AttachedToNode"})
    assert own.unseen == {"v": "AttachedToNode"}
    own.seen({"v": "Ready"})
    assert own.unseen == {}


def test_what_failed_is_tried_again_later_and_told_once() -> None:
    own, step = Hotplug(), Step("attach", "v")
    assert own.retries.wait() is None
    assert own.retries.tried(step, failed=True)
    assert not own.retries.tried(step, failed=True)
    wait = own.retries.wait()
    assert wait is not None
    assert 0 < wait <= 4
    own.retries.forget(step)
    assert own.retries.wait() is None

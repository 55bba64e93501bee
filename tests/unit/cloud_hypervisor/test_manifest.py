"""The manifest says what the driver does, and nothing else."""

import pytest

from anyvisor.drivers.cloud_hypervisor import manifest
from anyvisor.drivers.cloud_hypervisor.changes import _CHANGES
from anyvisor.planning import manifest as manifests
from anyvisor.planning.registry import registry


def test_it_is_a_manifest() -> None:
    parsed = manifests.parse(manifest.read().data, registry())
    assert (parsed.driver, parsed.launch_mode) == (manifest.DRIVER, "exec")
    assert manifest.read().digest == manifests.digest(manifest.read().data)


@pytest.mark.parametrize(
    "absent",
    [
        "accel.emulation",
        "boot.bios",
        "boot.order",
        "boot.uefi.secure",
        "boot.uefi.persistent",
        "console.virtio",
        "cpu.feature",
        "cpu.model.host",
        "cpu.pin",
        "device.tpm",
        "device.watchdog",
        "disk.cdrom",
        "disk.lun",
        "disk.shareable",
        "display.vnc",
        "feature.hyperv",
        "guest.agent",
        "input.tablet",
        "lifecycle.start-paused",
        "memory.lock",
        "move.live",
        "nic.user",
        "snapshot.memory",
        "stats.disk",
    ],
)
def test_what_is_lacking_is_not_stated(absent: str) -> None:
    assert absent not in manifest.read().stated


def test_each_change_that_is_served_is_stated() -> None:
    words = {"attach_disk": "disk.attach", "detach_disk": "disk.detach", "resize_disk": "disk.resize"}
    words |= {"attach_nic": "nic.attach", "detach_nic": "nic.detach", "set_cpu": "cpu", "set_memory": "memory"}
    served = {f"change.{words[kind]}" for kind in _CHANGES}
    assert served == {name for name in manifest.read().stated if name.startswith("change.")}

"""The manifest against the registry of capabilities, and the code that must keep its promises."""

from anyvisor.drivers.libvirt import manifest
from anyvisor.planning import manifest as planning_manifest
from anyvisor.planning.registry import registry


def test_the_planner_accepts_it() -> None:
    parsed = planning_manifest.parse(manifest.read().data, registry())
    assert parsed.driver == manifest.DRIVER
    assert parsed.launch_mode == "external"


def test_core_and_driver_agree_on_its_digest() -> None:
    assert planning_manifest.digest(manifest.read().data) == manifest.read().digest


def test_nothing_is_stated_that_the_driver_does_not_serve() -> None:
    unserved = {"boot.uefi", "nic.tap", "guest.agent", "change.disk.attach", "device.tpm", "ops.stop-hook"}
    assert not unserved & manifest.read().stated

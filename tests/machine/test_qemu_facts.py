"""Facts of the QEMU of this machine, and the driver held to the interface's contract."""

import shutil
from pathlib import Path

import pytest

from anyvisor.drivers.qemu import EMULATOR, facts, manifest
from anyvisor.hri.conformance import runner as conformance
from anyvisor.hri.conformance.runner import Options
from anyvisor.hri.conformance.session import Files
from anyvisor.hri.kit import kvm_guest
from tests import guests
from tests.machine.rig import Rig


async def test_facts_of_this_machine(tmp_path: Path) -> None:
    if shutil.which(EMULATOR) is None:
        pytest.skip("qemu-system-x86_64 is not installed")
    found = await facts.find(EMULATOR, tmp_path / "facts.json")
    assert found.problem == ""
    assert found.default_profile in found.profiles
    assert found.default_profile.startswith("pc-q35-")
    assert "max" in found.cpu_models
    assert {"VGA", "bochs-display"} <= set(found.displays)
    assert found.kvm_runs or found.kvm_message
    assert await facts.find(EMULATOR, tmp_path / "facts.json") == found


async def test_the_probe_guest_runs_under_emulation(tmp_path: Path) -> None:
    """It must fail for want of a good KVM only, never by itself."""
    if shutil.which(EMULATOR) is None:
        pytest.skip("qemu-system-x86_64 is not installed")
    assert await facts.run_probe(EMULATOR, "tcg", "max") == kvm_guest.EXIT_RUNS


async def test_the_driver_conforms_to_the_interface(rig: Rig) -> None:
    options = Options(
        hri_socket=str(rig.directory / "hri.sock"),
        fd_socket=str(rig.directory / "fd.sock"),
        level=1,
        manifest_digest=manifest.read().digest,
        talking=Files(kernel=str(guests.tiny_kernel())),
        talks=True,
    )
    report = await conformance.run(options)
    assert report.failed == []
    assert report.passed

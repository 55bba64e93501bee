"""The driver with the real Cloud Hypervisor, where `ANYVISOR_CLOUD_HYPERVISOR` names one."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from anyvisor.drivers.cloud_hypervisor.facts import LANDLOCK
from anyvisor.hri.errors import Refused
from anyvisor.hri.kit import landlock
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from tests.contract.cloud_hypervisor.rig import Rig, running_rig
from tests.contract.cloud_hypervisor.suite import DriverSuite, boot, disk, raw_disk

BINARY = os.environ.get("ANYVISOR_CLOUD_HYPERVISOR", "")


@pytest.fixture
async def rig(rundir: Path) -> AsyncGenerator[Rig]:
    """A driver in a process of its own, and the test as its agent."""
    if not BINARY:
        pytest.skip("ANYVISOR_CLOUD_HYPERVISOR names no Cloud Hypervisor (v53 or later)")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("/dev/kvm cannot be opened")
    async with running_rig(rundir, BINARY) as running:
        yield running


class TestRealCloudHypervisor(DriverSuite):
    """Every test of the suite, and what only the real program and its kernel show."""

    @pytest.mark.skipif(landlock.version() < LANDLOCK, reason="the kernel has no Landlock of version 3")
    async def test_the_vmm_is_kept_to_the_machines_own_files(self, rig: Rig, tmp_path: Path) -> None:
        guest = await boot(rig)
        (guest.directory / "link").symlink_to(raw_disk(tmp_path, "elsewhere.raw"))
        change = ApplyRequest(attach_disk=disk("extra", "h"), placed={"h": "link"})
        with pytest.raises(Refused, match="denied"):
            await rig.done(await rig.client.apply("m1", change, generation=2))

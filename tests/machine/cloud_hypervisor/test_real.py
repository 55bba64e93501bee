"""The driver with the real Cloud Hypervisor, where `ANYVISOR_CLOUD_HYPERVISOR` names one."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.contract.cloud_hypervisor.rig import Rig, running_rig
from tests.contract.cloud_hypervisor.suite import DriverSuite

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
    """Every test of the suite."""

"""Fixtures of the tests that boot guests."""

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.machine.rig import Rig, running_rig


@pytest.fixture
async def rig(rundir: Path) -> AsyncGenerator[Rig]:
    """A QEMU driver in a process of its own, and the test as its agent."""
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("qemu-system-x86_64 is not installed (Debian: apt-get install qemu-system-x86)")
    async with running_rig(rundir) as running:
        yield running

"""Fixtures of the QEMU driver's tests."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from tests.unit.qemu.peer import Peer


@pytest.fixture
async def peer() -> AsyncGenerator[Peer]:
    """The other end of a QMP session."""
    opened = Peer()
    yield opened
    opened.hang_up()
    opened.theirs.close()
    await asyncio.sleep(0)

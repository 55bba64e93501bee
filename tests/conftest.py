"""Markers by folder, and the fixtures that every tier shares."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TIERS = ("unit", "contract", "machine", "e2e", "cluster", "bench")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the tier whose folder it lives in."""
    for item in items:
        tier = item.path.relative_to(HERE).parts[0]
        if tier in TIERS:
            item.add_marker(tier)


@pytest.fixture
def rundir() -> Iterator[Path]:
    """A private directory whose path is short enough for unix sockets (108 bytes)."""
    path = Path(tempfile.mkdtemp(prefix="av-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)

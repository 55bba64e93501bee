"""Markers by folder, and the fixtures that every tier shares."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile("loaded machines", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded machines")

TIERS = ("unit", "contract", "machine", "e2e", "cluster", "bench")
# Tiers with many processes and emulated guests: on a machine that others load, a deadline may be missed once. The
# second try is shown in the summary ("R"), and a test that fails twice has failed.
TRIED_TWICE = ("contract", "machine", "e2e", "cluster")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the tier whose folder it lives in."""
    for item in items:
        tier = item.path.relative_to(HERE).parts[0]
        if tier in TIERS:
            item.add_marker(tier)
        if tier in TRIED_TWICE:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture
def rundir() -> Iterator[Path]:
    """A private directory whose path is short enough for unix sockets (108 bytes)."""
    path = Path(tempfile.mkdtemp(prefix="av-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)

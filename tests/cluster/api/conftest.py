"""One control plane with the product installed and two simulated nodes, for all tests here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import programs
from tests.cluster.installation import Installation
from tests.cluster.kit.build import API
from tests.cluster.kit.control_plane import ControlPlane, control_plane
from tests.cluster.simulation import SimulatedNodes

NODES = ("node-a", "node-b")
TEST_SECONDS = 1200
"""The first one may wait for a build that is under way."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Waiting for a build and for processes on a loaded machine is no failure."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """The official control plane, with an audit log."""
    with control_plane(programs(*API), controllers=True, scheduler=True, audit=True) as made:
        yield made


@pytest.fixture(scope="session")
def installed(plane: ControlPlane) -> Installation:
    """The product with the manifests of the drivers that are offered, and the one that boots nothing."""
    made = Installation(plane)
    made.install()
    return made


@pytest.fixture(scope="session")
def nodes(installed: Installation) -> SimulatedNodes:
    """Two nodes whose machines boot nothing."""
    made = SimulatedNodes(installed.plane, list(NODES))
    made.up()
    return made

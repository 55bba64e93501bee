"""One cluster with one node for all tests here: its start takes longer than they do.

`ANYVISOR_CLUSTER_AT=DIR` uses a cluster that runs already, as `python -m tests.cluster DIR` runs one.
"""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import cluster as clusters
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import programs
from tests.cluster.kit import node
from tools.images import rootfs

LAST = Path(__file__).with_name("test_removal.py")
MEMORY_LIMIT = 8 << 30
"""Of this process, so that a test that reads without end fails with a traceback before the machine stands still."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for the whole cluster, and all of them for emulated guests."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(900))
    items.sort(key=lambda item: item.path == LAST)


@pytest.fixture(scope="session", autouse=True)
def limited_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture(scope="session")
def cluster(limited_memory: None) -> Iterator[Cluster]:
    running = os.environ.get("ANYVISOR_CLUSTER_AT")
    if running:
        yield clusters.attach(Path(running))
        return
    if os.environ.get("ANYVISOR_CLUSTER") != "yes":
        pytest.skip("a whole cluster is started by `make test-cluster` only")
    lacking = node.lacking()
    if lacking:
        pytest.skip(f"a node needs {', '.join(lacking)} on this machine")
    found = programs("apiserver", "controllers", "node", "runtime", "cni")
    try:
        archives = clusters.product_archives()
    except rootfs.CannotBuildError as error:
        pytest.skip(str(error))
    with clusters.cluster(found, archives) as made:
        yield made

"""What the cluster tests stand on: the official components, from the cache or built where that is asked for.

`make test` runs what the cache has; `make test-cluster` builds first (`ANYVISOR_CLUSTER=yes`).
"""

import os
from pathlib import Path

import pytest

from tests.cluster.kit import build


def programs(*targets: str) -> Path:
    """The folder of the official programs; skips the test where they are not there and not to be built."""
    lacking = build.missing(targets)
    if lacking and os.environ.get("ANYVISOR_CLUSTER") != "yes":
        pytest.skip(f"{', '.join(lacking)} of Kubernetes {build.VERSION} not built: run `make kubernetes` (needs Go)")
    try:
        return build.build(targets)
    except build.CannotBuildError as error:
        pytest.skip(str(error))

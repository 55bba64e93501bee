"""What the cluster tests stand on: the official components, from the cache or built where that is asked for.

`make test` runs what the cache has, or is about to have as somebody builds it now; `make test-cluster` builds first
(`ANYVISOR_CLUSTER=yes`).
"""

import functools
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.cluster.kit import build


@functools.cache
def _waiting_since() -> float:
    return time.monotonic()


def _patience() -> float:
    """Seconds that are left to wait for a build, of those that all tests together have."""
    return _waiting_since() + build.WAIT_SECONDS - time.monotonic()


def programs(*targets: str) -> Path:
    """The folder of the official programs; skips the test where they are not there and not to be built."""
    if os.environ.get("ANYVISOR_CLUSTER") != "yes" and not build.wait_for_build(targets, _patience()):
        lacking = ", ".join(build.missing(targets))
        if shutil.which("go") is None:
            pytest.skip(f"{lacking} of Kubernetes {build.VERSION} not built, which needs Go: it is not installed here")
        pytest.skip(f"{lacking} of Kubernetes {build.VERSION} not built: run `make kubernetes` (11 minutes, once)")
    try:
        return build.build(targets)
    except build.CannotBuildError as error:
        pytest.skip(str(error))

"""What the zygote imports before it forks: all that several components use, and nothing else.

They share its pages. What only one of them uses would be in memory twice, as Python writes its reference counts into
the pages of the objects; so each imports its own part in its own process, beside the others.
"""

import contextlib
import os
from collections.abc import Generator
from importlib import import_module

_SHARED = (
    "aiohttp.web",
    "uvloop",
    "grpclib.client",
    "grpclib.server",
    "prometheus_client",
    "anyvisor.api.kubevirt.v1",
    "anyvisor.kube.informer",
    "anyvisor.kube.events",
)


def preload() -> None:
    """Import it."""
    with no_authorities():
        for name in _SHARED:
            import_module(name)


@contextlib.contextmanager
def no_authorities() -> Generator[None]:
    """Let modules that are imported load no certificate authorities.

    aiohttp reads the system's twice when it is imported, for contexts that nothing of ours uses (every connection
    states its own): a tenth of a second of each start, and 2 MiB.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, os.devnull))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

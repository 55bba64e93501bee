"""The driver's manifest: the file beside this module, read once."""

from functools import cache
from importlib import resources
from typing import Any, Final

from anyvisor.hri import manifests

DRIVER: Final = "cloud-hypervisor.anyvisor.io"


@cache
def load() -> dict[str, Any]:
    """The manifest as data."""
    package = resources.files("anyvisor.drivers.cloud_hypervisor")
    return manifests.read(package.joinpath("manifest.yaml").read_text(encoding="utf-8"))


@cache
def digest() -> str:
    """Its digest, as the core computes it."""
    return manifests.digest(load())


@cache
def stated_capabilities() -> frozenset[str]:
    """The capability ids that the driver states as yes."""
    return manifests.stated(load())

"""The driver's manifest: the file beside this module."""

from typing import Final

from anyvisor.hri.manifests import Packaged, packaged

DRIVER: Final = "libvirt.anyvisor.io"


def read() -> Packaged:
    """The manifest, read once."""
    return packaged("anyvisor.drivers.libvirt")

"""Devices of the node that a machine needs open, beside those of its network."""

import os
from pathlib import Path
from typing import Final

from anyvisor.agent.open_error import OpenError
from anyvisor.agent.translate_devices import VSOCK
from anyvisor.api.meta import Json, object_at

VSOCK_DEVICE: Final = Path("/dev/vhost-vsock")


def open_devices(vmi: Json, vsock: Path = VSOCK_DEVICE) -> dict[str, int]:
    """Descriptors by handle, the caller's to close.

    Raises:
        OpenError: the node does not have one.
    """
    if object_at(vmi, "spec", "domain", "devices").get("autoattachVSOCK") is not True:
        return {}
    at = "spec.domain.devices.autoattachVSOCK"
    if not object_at(vmi, "status").get("VSOCKCID"):
        raise OpenError(at, "VSOCKNotReady", "the VMI has no context id yet", retry=True)
    try:
        return {VSOCK: os.open(vsock, os.O_RDWR | os.O_CLOEXEC)}
    except OSError as error:
        message = f"{vsock} cannot be opened: {error.strerror}; run: modprobe vhost_vsock"
        raise OpenError(at, "VSOCKNotReady", message, retry=True) from error

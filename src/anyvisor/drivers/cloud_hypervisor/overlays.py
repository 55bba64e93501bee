"""Writes names into the headers of overlays, before the VMM opens them."""

import asyncio
import os
from collections.abc import Callable, Sequence

from anyvisor.drivers.cloud_hypervisor.translate.overlays import READ, Overlay, OverlayError, check_base, named
from anyvisor.hri.errors import Refused, VmmFailed, finding


async def prepare(overlays: Sequence[Overlay], opened: Callable[[str], int]) -> None:
    """Name what lies below each overlay. `opened`: the descriptor of a handle.

    Raises:
        Refused: an image is not what it was said to be. VmmFailed: it cannot be read or written.
    """
    for overlay in overlays:
        base = opened(overlay.base_handle) if overlay.base_format == "qcow2" else None
        try:
            await asyncio.to_thread(_prepare, overlay, opened(overlay.handle), base)
        except OverlayError as error:
            raise Refused(
                f"disk {overlay.disk!r}: {error}",
                findings=[finding("VALUE_INVALID", str(error), field=f"disks[{overlay.disk}].volume.layers")],
            ) from error
        except OSError as error:
            raise VmmFailed(f"disk {overlay.disk!r}: its overlay cannot be used: {error.strerror}") from error


def _prepare(overlay: Overlay, top: int, base: int | None) -> None:
    if base is not None:
        check_base(os.pread(base, READ, 0))
    header = os.pread(top, READ, 0)
    wanted = named(header, overlay.base_path, overlay.base_format)
    if header[: len(wanted)] != wanted:
        os.pwrite(top, wanted, 0)
        os.fdatasync(top)

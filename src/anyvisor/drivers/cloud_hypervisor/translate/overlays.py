"""Overlays: the VMM finds the image below one only by a name in its header, so that name must be ours.

The agent makes an overlay (version 3, naming nothing) for a disk that is to stay as it is, and says beside it what lies
below. Before the VMM opens it, its header gets the name under which the VMM has the lower image: one of its own
descriptors. Nothing but such an overlay is written to, and what it lies on must itself name nothing.

Format: https://www.qemu.org/docs/master/interop/qcow2.html
"""

import struct
from dataclasses import dataclass
from typing import Final

MAGIC: Final = b"QFI\xfb"
VERSION: Final = 3
BARE: Final = 104
"""Bytes of a version 3 header without additions."""
READ: Final = 4096
"""The header with its extensions and the name must fit into this much."""
BACKING_FORMAT: Final = 0xE2792ACA
DATA_FILE: Final = 1 << 2
OWN_NAME: Final = b"/proc/self/fd/"
_HEAD: Final = struct.Struct(">4sIQII")
_EXTENSION: Final = struct.Struct(">II")


class OverlayError(ValueError):
    """The image is not what it was said to be; the message says how."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """One overlay of a machine: whose header gets which name."""

    disk: str
    handle: str
    base_handle: str
    base_path: str
    base_format: str
    """`raw` or `qcow2`."""


def named(header: bytes, base_path: str, base_format: str) -> bytes:
    """The overlay's first bytes with the name in them. `header`: its first `READ` bytes, or all of a shorter file.

    Raises:
        OverlayError: this is no overlay of ours.
    """
    version, backing, length = _head(header)
    if version != VERSION:
        raise OverlayError(f"the overlay has version {version}, not {VERSION}")
    if backing and not _name(header).startswith(OWN_NAME):
        raise OverlayError("the overlay names an image of its own")
    size = struct.unpack_from(">I", header, 100)[0]
    cluster_bits = struct.unpack_from(">I", header, 20)[0]
    if not BARE <= size <= 1024 or size % 8 or not 12 <= cluster_bits <= 21 or length > READ:
        raise OverlayError("the overlay's header is not one of ours")
    kept = b"".join(_EXTENSION.pack(kind, len(data)) + _padded(data) for kind, data in _extensions(header, size))
    format_word = base_format.encode()
    added = _EXTENSION.pack(BACKING_FORMAT, len(format_word)) + _padded(format_word)
    body = added + kept + _EXTENSION.pack(0, 0)
    name = base_path.encode()
    if size + len(body) + len(name) > READ:
        raise OverlayError("the overlay's header has no room for a name")
    head = _HEAD.pack(MAGIC, VERSION, size + len(body), len(name), cluster_bits)
    return head + header[_HEAD.size : size] + body + name


def check_base(header: bytes) -> None:
    """See that a qcow2 image names no other file. Raises OverlayError."""
    version, backing, _ = _head(header)
    features = struct.unpack_from(">Q", header, 72)[0] if version >= VERSION else 0
    if backing or features & DATA_FILE:
        raise OverlayError("the image below names another file; flatten it")


def _head(header: bytes) -> tuple[int, int, int]:
    """Version, backing file offset, and the length of the header at hand."""
    if len(header) < BARE or header[:4] != MAGIC:
        raise OverlayError("the image is not qcow2")
    _, version, backing, _, _ = _HEAD.unpack_from(header)
    return version, backing, len(header)


def _name(header: bytes) -> bytes:
    _, _, offset, size, _ = _HEAD.unpack_from(header)
    return header[offset : offset + size]


def _extensions(header: bytes, start: int) -> list[tuple[int, bytes]]:
    """Those that are there already, without the format of what lies below."""
    found: list[tuple[int, bytes]] = []
    while start + _EXTENSION.size <= len(header):
        kind, length = _EXTENSION.unpack_from(header, start)
        start += _EXTENSION.size
        if kind == 0:
            return found
        if start + length > len(header):
            break
        if kind != BACKING_FORMAT:
            found.append((kind, header[start : start + length]))
        start += len(_padded(header[start : start + length]))
    raise OverlayError("the overlay's header extensions do not end")


def _padded(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // 8) * 8, b"\0")

"""The qcow2 format, as far as a disk must be checked before it is trusted, and an empty overlay made.

Format: https://www.qemu.org/docs/master/interop/qcow2.html. An image comes from a user, so nothing in it is believed:
it may not name other files, and every table must lie within the file.
"""

import array
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

MAGIC = b"QFI\xfb"
_HEADER_V2 = struct.Struct(">4sIQIIQIIQQIIQ")
_HEADER_V3_TAIL = struct.Struct(">QQQII")
_OFFSET_MASK = 0x00FF_FFFF_FFFF_FE00
_COMPRESSED = 1 << 62
_DIRTY, _CORRUPT, _DATA_FILE, _COMPRESSION_TYPE, _EXTENDED_L2 = (1 << bit for bit in range(5))
_UNDERSTOOD = _DIRTY | _COMPRESSION_TYPE | _EXTENDED_L2
_MAX_L1_BYTES = 32 * 1024**2
_MAX_VIRTUAL_BYTES = 64 * 1024**4

Reader = Callable[[int, int], bytes]


class ImageError(Exception):
    """An image cannot be used; the message says why, and what to do where something can be done."""


@dataclass(frozen=True, slots=True)
class Qcow2Info:
    """What a checked image says of itself."""

    virtual_bytes: int
    cluster_bytes: int


@dataclass(frozen=True, slots=True)
class _Header:
    cluster_bits: int
    virtual_bytes: int
    l1_entries: int
    l1_offset: int
    extended_l2: bool


def inspect(read: Reader, file_bytes: int) -> Qcow2Info:
    """Check a whole image.

    Args:
        read: gives `size` bytes at `offset`, fewer at the end of the file.
        file_bytes: the file's length.

    Raises:
        ImageError: the image is damaged, or names or needs something outside itself.
    """
    header = _read_header(read, file_bytes)
    cluster = 1 << header.cluster_bits
    l1_bytes = header.l1_entries * 8
    if l1_bytes > _MAX_L1_BYTES or header.l1_offset % cluster or header.l1_offset + l1_bytes > file_bytes:
        raise ImageError("the image is damaged: its cluster table lies outside the file")
    entry_bytes = 16 if header.extended_l2 else 8
    needed = -(-header.virtual_bytes // (cluster * (cluster // entry_bytes)))
    if header.l1_entries < needed:
        raise ImageError("the image is damaged: its cluster table is shorter than the disk")
    for entry in _words(read(header.l1_offset, l1_bytes)):
        table = entry & _OFFSET_MASK
        if table:
            _check_l2(read, table, cluster, header.extended_l2, file_bytes)
    return Qcow2Info(header.virtual_bytes, cluster)


def _read_header(read: Reader, file_bytes: int) -> _Header:
    head = read(0, 112)
    if len(head) < _HEADER_V2.size or head[:4] != MAGIC:
        raise ImageError("the image is damaged: its header is cut off")
    (_, version, backing, _, cluster_bits, size, crypt, l1_entries, l1_offset, refcounts, _, _, _) = (
        _HEADER_V2.unpack_from(head)
    )
    if version not in (2, 3):
        raise ImageError(f"qcow2 version {version} is not supported: convert the image to version 3")
    if backing:
        name = read(backing, 64).split(b"\0")[0].decode("ascii", "replace")
        raise ImageError(
            f"the image is not whole: it refers to the backing file {name!r} on another machine's disk; "
            "flatten it (convert it to a stand-alone image) and import the result"
        )
    incompatible = 0
    if version == 3:
        if len(head) < 104:
            raise ImageError("the image is damaged: its header is cut off")
        incompatible = _HEADER_V3_TAIL.unpack_from(head, _HEADER_V2.size)[0]
    _check_features(incompatible, crypt)
    if not 9 <= cluster_bits <= 21 or not 0 < size <= _MAX_VIRTUAL_BYTES:
        raise ImageError("the image is damaged: impossible cluster or disk size")
    if refcounts % (1 << cluster_bits) or not 0 < refcounts < file_bytes:
        raise ImageError("the image is damaged: its reference table lies outside the file")
    return _Header(cluster_bits, size, l1_entries, l1_offset, bool(incompatible & _EXTENDED_L2))


def _check_features(incompatible: int, crypt: int) -> None:
    if incompatible & _CORRUPT:
        raise ImageError("the image is marked as corrupt: repair it first")
    if incompatible & _DATA_FILE:
        raise ImageError("the image keeps its data in another file: convert it to a stand-alone image")
    if crypt:
        raise ImageError("the image is encrypted, which is not supported: convert it to a plain one")
    if unknown := incompatible & ~_UNDERSTOOD:
        raise ImageError(f"the image uses qcow2 features that are not supported (bits {unknown:#x})")


def _words(data: bytes) -> "array.array[int]":
    words = array.array("Q", data[: len(data) // 8 * 8])
    if sys.byteorder == "little":
        words.byteswap()
    return words


def _check_l2(read: Reader, offset: int, cluster: int, extended: bool, file_bytes: int) -> None:
    if offset % cluster or offset + cluster > file_bytes:
        raise ImageError("the image is damaged (cut off?): a cluster table lies outside the file")
    entries = _words(read(offset, cluster))
    for entry in entries[::2] if extended else entries:
        if entry == 0:
            continue
        start = entry & ((1 << 48) - 1) if entry & _COMPRESSED else entry & _OFFSET_MASK
        if start >= file_bytes:
            raise ImageError("the image is damaged (cut off?): data lies outside the file")


def empty(virtual_bytes: int) -> bytes:
    """An image with nothing in it (version 3, clusters of 64 KiB), to be written to the start of an empty file.

    It names no backing file: who opens it says what lies below.
    """
    cluster, bits = 65_536, 16
    l1_entries = max(1, -(-virtual_bytes // (cluster * cluster // 8)))
    l1_clusters = -(-l1_entries * 8 // cluster)
    header = _HEADER_V2.pack(MAGIC, 3, 0, 0, bits, virtual_bytes, 0, l1_entries, 3 * cluster, cluster, 1, 0, 0)
    header += _HEADER_V3_TAIL.pack(0, 0, 0, 4, 104)
    refcount_table = struct.pack(">Q", 2 * cluster)
    refcount_block = struct.pack(">H", 1) * (3 + l1_clusters)
    parts = (header, refcount_table, refcount_block)
    return b"".join(part.ljust(cluster, b"\0") for part in parts) + bytes(l1_clusters * cluster)

"""What machines are made of: disk images and taps, as descriptors, made here and gone with their context."""

import fcntl
import os
import struct
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from anyvisor.hri.conformance.full_disk import FullDisk, FullDiskError, full_disk
from anyvisor.hri.v1.machine_spec_pb2 import VolumeHandle

MIB: Final = 1 << 20
IMAGE_BYTES: Final = 4 * MIB
FULL_BYTES: Final = 6 * MIB
SECTOR: Final = 512
CLUSTER_BITS: Final = 16
_CLUSTER: Final = 1 << CLUSTER_BITS
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x2, 0x1000, 0x4000
_Layer = VolumeHandle.Layer


class Materials:
    """Descriptors by handle; a context manager that closes them and removes the files."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="av-", dir="/tmp")
        self.path = Path(self._folder.name)
        self.handles: dict[str, int] = {}
        self.full: dict[str, FullDisk] = {}
        self.no_full = ""
        """Why no full file system could be made."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self.handles.values():
            os.close(fd)
        self.handles.clear()
        self._folder.cleanup()

    def raw(self, handle: str, label: str, size: int = IMAGE_BYTES, *, read_only: bool = False) -> VolumeHandle:
        """A raw image that begins with a label."""
        self._open(handle, label.encode().ljust(SECTOR, b"\0"), size, read_only=read_only)
        layer = _Layer(handle=handle, format=_Layer.FORMAT_RAW, read_only=read_only)
        return VolumeHandle(layers=[layer], size_bytes=size)

    def overlay(self, handle: str, label: str, size: int = IMAGE_BYTES, *, read_only: bool = False) -> VolumeHandle:
        """An empty qcow2 layer over a raw image with a label: a guest that reads the label reads through both."""
        below = self.raw(f"{handle}/below", label, size, read_only=True)
        self._open(handle, qcow2(size), 0, read_only=read_only)
        top = _Layer(handle=handle, format=_Layer.FORMAT_QCOW2, read_only=read_only)
        return VolumeHandle(layers=[top, *below.layers], size_bytes=size)

    def on_full(self, handle: str, label: str) -> bool:
        """A sparse raw image on a file system without room; False where none can be made."""
        folder = self.path / handle.replace("/", "-")
        folder.mkdir()
        try:
            made = full_disk(str(folder), FULL_BYTES, IMAGE_BYTES if label else 0, label)
        except FullDiskError as error:
            self.no_full = str(error)
            return False
        self.full[handle] = made
        self.handles[handle] = made.image
        self.handles[f"{handle}/filler"] = made.filler
        return True

    def volume(self, handle: str) -> VolumeHandle:
        """The raw image of a handle."""
        layer = _Layer(handle=handle, format=_Layer.FORMAT_RAW)
        return VolumeHandle(layers=[layer], size_bytes=IMAGE_BYTES)

    def tap(self, handle: str) -> bool:
        """A tap device; False where the host lets us have none. It is gone when its last descriptor is."""
        try:
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", b"", _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
        except OSError:
            os.close(fd)
            return False
        self.handles[handle] = fd
        return True

    def file(self, handle: str) -> Path:
        """Where the image of a handle lies."""
        return self.path / handle.replace("/", "-")

    def _open(self, handle: str, content: bytes, size: int, *, read_only: bool = False) -> None:
        path = self.file(handle)
        path.write_bytes(content)
        if size:
            os.truncate(path, size)
        self.handles[handle] = os.open(path, (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)


def qcow2(size: int) -> bytes:
    """An empty qcow2 image (version 3) that names no backing file: header, refcounts, one L1 table, a cluster each."""
    clusters = -(-size // _CLUSTER)
    entries = max(-(-clusters // (_CLUSTER // 8)), 1)
    header = struct.pack(
        ">4sIQIIQIIQQIIQQQQII",
        *(b"QFI\xfb", 3, 0, 0, CLUSTER_BITS, size, 0, entries),
        *(3 * _CLUSTER, _CLUSTER, 1, 0, 0, 0, 0, 0, 4, 104),
    )
    table = struct.pack(">Q", 2 * _CLUSTER).ljust(_CLUSTER, b"\0")
    block = struct.pack(">HHHH", 1, 1, 1, 1).ljust(_CLUSTER, b"\0")
    return header.ljust(_CLUSTER, b"\0") + table + block + bytes(_CLUSTER)

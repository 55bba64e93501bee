"""What a disk file is, decided once when it comes in, and recorded."""

import os
from dataclasses import dataclass

from anyvisor.agent.volumes import qcow2
from anyvisor.agent.volumes.qcow2 import ImageError

_SECTOR = 512
# First bytes of formats that would otherwise pass as raw disks and boot into nothing.
_FOREIGN = {
    b"KDMV": "VMDK",
    b"# Di": "VMDK",
    b"vhdx": "VHDX",
    b"cone": "VHD",
    b"QED\0": "QED",
    b"LUKS": "LUKS",
    b"<<< ": "VDI",
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ": "xz",
    b"(\xb5/\xfd": "zstd",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}


CONVERTIBLE = frozenset({"vmdk", "vhd", "vhdx", "vdi"})
"""What a driver's tool can turn into a raw disk."""


@dataclass(frozen=True, slots=True)
class DiskFormat:
    """A recorded format: `raw` or `qcow2`, and the size that a guest sees."""

    name: str
    virtual_bytes: int


def detect(descriptor: int) -> DiskFormat:
    """Tell and check the format of an open disk file.

    Raises:
        ImageError: it is none that can be used.
    """
    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, 16, 0)
    if head[:4] == qcow2.MAGIC:
        info = qcow2.inspect(lambda offset, count: os.pread(descriptor, count, offset), size)
        return DiskFormat("qcow2", info.virtual_bytes)
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            remedy = "import it as a file" if name.lower() in CONVERTIBLE else "convert it to a raw or qcow2 disk first"
            raise ImageError(f"is a {name} file: {remedy}")
    if size < _SECTOR:
        raise ImageError(f"holds {size} bytes, which is no disk")
    return DiskFormat("raw", -(-size // _SECTOR) * _SECTOR)


def foreign(head: bytes) -> str:
    """The name of a format, by a file's first bytes, that has to be converted and can be; else empty."""
    found = next((name.lower() for magic, name in _FOREIGN.items() if head.startswith(magic)), "")
    return found if found in CONVERTIBLE else ""

"""The right of a launcher's user to open a file anew that the agent opened for it.

A VMM that takes no descriptor opens `/proc/self/fd/N`, and the kernel then asks for the file's own permissions. One
entry in the file's access control list gives this user what the descriptor has, and changes nothing for anybody else.
"""

import errno
import fcntl
import os
import struct
from typing import Final

_ATTRIBUTE: Final = "system.posix_acl_access"
_VERSION: Final = struct.pack("<I", 2)
_ENTRY: Final = struct.Struct("<HHI")
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NOBODY: Final = 0xFFFFFFFF
_READ, _WRITE = 4, 2

Entries = dict[tuple[int, int], int]
"""(tag, id) -> permissions."""


def grant(descriptor: int, uid: int) -> None:
    """Let `uid` open the file of `descriptor` as the descriptor is open. Raises OSError when the file system cannot."""
    writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    wanted = _READ | (_WRITE if writable else 0)
    if uid == 0 or _allowed(os.fstat(descriptor), uid, wanted):
        return
    path = f"/proc/self/fd/{descriptor}"
    entries = _entries(path, os.fstat(descriptor).st_mode)
    os.setxattr(path, _ATTRIBUTE, encode(with_user(entries, uid, wanted)))


def _allowed(status: os.stat_result, uid: int, wanted: int) -> bool:
    """Whether owner or others may already; groups are not looked at, as the launcher has none of ours."""
    bits = status.st_mode >> 6 if status.st_uid == uid else status.st_mode
    return bits & wanted == wanted


def _entries(path: str, mode: int) -> Entries:
    try:
        return decode(os.getxattr(path, _ATTRIBUTE))
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return {
            (_OWNER, _NOBODY): mode >> 6 & 7,
            (_GROUP, _NOBODY): mode >> 3 & 7,
            (_OTHER, _NOBODY): mode & 7,
        }


def with_user(entries: Entries, uid: int, permissions: int) -> Entries:
    """The list with one user more; the mask lets pass what anybody in the group class has."""
    result = {**entries, (_USER, uid): entries.get((_USER, uid), 0) | permissions}
    result.pop((_MASK, _NOBODY), None)
    mask = 0
    for (tag, _), allowed in result.items():
        if tag in (_USER, _GROUP, _NAMED_GROUP):
            mask |= allowed
    return {**result, (_MASK, _NOBODY): mask}


def encode(entries: Entries) -> bytes:
    """The kernel's form: sorted by tag and id."""
    return _VERSION + b"".join(_ENTRY.pack(tag, entries[tag, who], who) for tag, who in sorted(entries))


def decode(data: bytes) -> Entries:
    """The list in the kernel's form; raises OSError for another."""
    if data[:4] != _VERSION or (len(data) - 4) % _ENTRY.size:
        raise OSError(errno.EINVAL, "the file's access control list has an unknown form")
    return {(tag, who): allowed for tag, allowed, who in _ENTRY.iter_unpack(data[4:])}

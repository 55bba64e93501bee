"""A file system that is nearly full: an image on it, and a filler whose removal makes room.

It is a tmpfs in a mount namespace of its own, made by a helper process that hands over both files and ends; where we
are not root, in a user namespace as well. The file system lives as long as its files are open.
"""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

_HELPER: Final = """
import ctypes, os, socket, sys
sock, folder, size, image, label = int(sys.argv[1]), *sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
def must(result):
    if result:
        raise SystemExit(os.strerror(ctypes.get_errno()))
must(libc.unshare(0x20000 | (0 if os.geteuid() == 0 else 0x10000000)))
must(libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None))
must(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, f"size={size}".encode()))
if int(image):
    a = os.open(folder + "/image", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(a, label.encode().ljust(512, b"\\0"))
    os.ftruncate(a, int(image))
else:
    a = os.open(folder + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
b = os.open(folder + "/filler", os.O_RDWR | os.O_CREAT, 0o600)
try:
    while os.write(b, bytes(4096)):
        pass
except OSError:
    pass
socket.send_fds(socket.socket(fileno=sock), [b"x"], [a, b])
"""


class FullDiskError(Exception):
    """None can be made here; the message says why."""


@dataclass(frozen=True, slots=True)
class FullDisk:
    """Descriptors, the caller's to close."""

    image: int
    filler: int

    def make_room(self) -> None:
        """Give the space back."""
        os.ftruncate(self.filler, 0)


def full_disk(folder: str, size: int, image: int, label: str) -> FullDisk:
    """A full file system of `size` bytes, with a sparse image that begins with a label; with a log if `image` is 0."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-I", "-S", "-c", _HELPER, str(number), folder, str(size), str(image), label]
            done = subprocess.run(command, pass_fds=[number], capture_output=True, text=True, timeout=30, check=False)
        if done.returncode:
            raise FullDiskError(f"no small file system can be made here: {done.stderr.strip()[-200:]}")
        _, descriptors, _, _ = socket.recv_fds(ours, 16, 2)
    return FullDisk(*descriptors)

"""What a driver wants a machine's new files to hold before its VMM starts."""

import os
from collections.abc import Iterable
from typing import Final

from anyvisor.agent.descriptors import Descriptors
from anyvisor.agent.launchers import LauncherError
from anyvisor.hri.v1.machine_pb2 import Seed

LIMIT: Final = 4 << 20


def sow(seeds: Iterable[Seed], held: Descriptors) -> None:
    """Fill the empty files among the machine's, and make those that it does not have, to go with the VMM.

    Raises:
        LauncherError: a file holds what this driver cannot use, or cannot be written.
    """
    for seed in seeds:
        if len(seed.content) > LIMIT:
            raise LauncherError(f"the driver's content of {seed.handle[:80]!r} is larger than {LIMIT >> 20} MiB")
        descriptor = held.get(seed.handle)
        try:
            if descriptor is None:
                descriptor = held.put(seed.handle, os.memfd_create(seed.handle[:80]))
            _fill(descriptor, seed)
        except OSError as error:
            raise LauncherError(f"{seed.handle[:80]!r} cannot be written: {error.strerror}; free some space") from error


def _fill(descriptor: int, seed: Seed) -> None:
    """A file that an earlier start left half filled holds the beginning of the content, and is filled on."""
    content, size = seed.content, os.fstat(descriptor).st_size
    if size == len(content) or not content:
        return
    if size > len(content) or os.pread(descriptor, size, 0) != content[:size]:
        raise LauncherError(
            f"what is kept as {seed.handle[:80]!r} has {size} bytes, and this driver's firmware works with "
            f"{len(content)}: it was written by another one. Use that one, or delete the claim that keeps it"
        )
    at = size
    while at < len(content):
        at += os.pwrite(descriptor, content[at:], at)
    os.fsync(descriptor)

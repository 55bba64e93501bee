"""Whether the kernel can confine a process to the files that it names (Landlock)."""

import ctypes
from typing import Final

_CREATE_RULESET: Final = 444  # the same on every architecture
_VERSION: Final = 1  # LANDLOCK_CREATE_RULESET_VERSION


def version() -> int:
    """The newest version of Landlock's interface that the kernel has; 0 = none, or it is switched off."""
    return max(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _VERSION), 0)

"""The host's KVM as a driver sees it. That /dev/kvm opens does not mean that a guest runs: see `kvm_guest`."""

import os
from typing import Final

DEVICE: Final = "/dev/kvm"


def permitted() -> bool:
    """Whether this process may use KVM; cheap, and enough to notice a change."""
    return os.access(DEVICE, os.R_OK | os.W_OK)


def try_open() -> tuple[bool, str]:
    """Whether KVM opens, else why not and what to do about it."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return False, f"{DEVICE} does not exist: enable virtualization in the firmware, and load the kvm module"
    except OSError as error:
        return False, f"{DEVICE} cannot be opened ({error.strerror}): give the driver's user access to it"
    return True, ""

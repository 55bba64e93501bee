"""The guests for tests; a test is skipped, with the reason, where one cannot be built."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from guests import build

T = TypeVar("T")


def tiny_kernel() -> Path:
    """The tiny guest (PVH kernel): counts on COM1, answers lines, obeys the power button."""
    return _or_skip(build.tiny)


def tiny_kernel_64() -> Path:
    """The tiny guest as ELF64, for a VMM that loads nothing else."""
    return _or_skip(build.tiny64)


def boot_disk() -> Path:
    """The raw disk that boots by BIOS, counts on COM1, ignores the power button (copy it to write)."""
    return _or_skip(build.disk)


def linux_guest() -> build.LinuxGuest:
    """Debian's cloud kernel with a busybox initramfs."""
    return _or_skip(build.linux)


def reporting_guest() -> build.LinuxGuest:
    """The same, with what the conformance program needs to look at all buses."""
    return _or_skip(build.linux_reporting)


def linux_guest_with_agent() -> build.LinuxGuest:
    """The same with a guest agent in it."""
    return _or_skip(build.linux_with_agent)


def tiny_archive() -> Path:
    """The tiny guest as an OCI archive."""
    return _or_skip(build.tiny_archive)


def disk_archive() -> Path:
    """The disk that boots as an OCI archive."""
    return _or_skip(build.disk_archive)


def uefi_archive() -> Path:
    """The disk that boots by UEFI, also with secure boot, as an OCI archive."""
    return _or_skip(build.uefi_archive)


def installer_archive() -> Path:
    """The installer's CD as an OCI archive."""
    return _or_skip(build.installer_archive)


def linux_archive() -> Path:
    """The Linux guest as an OCI archive."""
    return _or_skip(build.linux_archive)


def linux_with_agent_archive() -> Path:
    """The Linux guest with an agent as an OCI archive."""
    return _or_skip(build.linux_with_agent_archive)


def linux_measuring_archive() -> Path:
    """The Linux guest with a program that measures disk and network as an OCI archive."""
    return _or_skip(build.linux_measuring_archive)


def debian_disk() -> Path:
    """A full Debian disk with cloud-init, an SSH server and the guest agent."""
    return _or_skip(build.debian)


def _or_skip(make: Callable[[], T]) -> T:
    try:
        return make()
    except build.CannotBuildError as error:
        pytest.skip(f"guest not built: {error}")

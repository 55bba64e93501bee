"""Files that libvirt takes by path only: kernels and initial ramdisks, copied from the agent's descriptors.

QEMU may run as a user of its own, so they lie where every user can come: below the directory for temporary files,
which nobody but us may list or write to.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from anyvisor.hri.errors import VmmFailed


def directory() -> Path:
    """Where they are, one directory below it for each machine."""
    return Path(tempfile.gettempdir()) / f"anyvisor-libvirt-{os.geteuid()}"


def place(base: Path, machine_id: str, files: Mapping[str, int]) -> None:
    """Copy each descriptor's content to `base/machine_id/name`.

    Raises:
        VmmFailed: there is no room, or somebody else made the directory.
    """
    if not files:
        return
    try:
        base.mkdir(mode=0o711, exist_ok=True)
        found = base.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{base} belongs to somebody else")
        base.chmod(0o711)
        own = base / machine_id
        own.mkdir(mode=0o711, exist_ok=True)
        own.chmod(0o711)
        for name, descriptor in files.items():
            with open(descriptor, "rb", closefd=False) as source, (own / name).open("wb") as target:
                source.seek(0)
                shutil.copyfileobj(source, target)
                os.fchmod(target.fileno(), 0o644)
    except OSError as error:
        raise VmmFailed(f"the kernel cannot be put where libvirt finds it: {error}", retry="backoff") from error


def remove(base: Path, machine_id: str) -> None:
    """Nothing of the machine stays."""
    shutil.rmtree(base / machine_id, ignore_errors=True)

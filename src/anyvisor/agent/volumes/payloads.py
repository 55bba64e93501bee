"""What the launcher pod carries for its guest: Secrets, ConfigMaps and the like, read where the pod mounts them.

The agent may not read Secrets itself. What it reads was projected into the pod by the node (kubelet), read-only for
the pod; files are links into a directory that is swapped as a whole, so links are followed, but never out of the mount.
"""

import os
import stat
from collections.abc import Mapping
from typing import Any, Final

from anyvisor.agent import linux
from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.api.names import volume_path

TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
MAX_FILE_BYTES: Final = 1536 * 1024
MAX_FILES: Final = 4096
MAX_DEPTH: Final = 6
_RESOLVE: Final = linux.RESOLVE_BENEATH | linux.RESOLVE_NO_MAGICLINKS
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Files = Mapping[str, bytes]
"""Content by path relative to the mount."""
_MOUNTED: Final = ("configMap", "secret", "downwardAPI", "sysprep")
CLOUD_INIT: Final = ("cloudInitNoCloud", "cloudInitConfigDrive")
USER_DATA: Final = "udata"
NETWORK_DATA: Final = "ndata"


class PayloadError(Exception):
    """What the pod carries cannot be used; the message says why."""


def secret_path(volume: str, part: str) -> str:
    """Where the pod has a cloud-init volume's Secret."""
    return volume_path(f"{volume}-{part}")


def credential_path(secret: str) -> str:
    """Where the pod has a Secret of access credentials."""
    return volume_path(f"{secret}-access-cred")


def credential_secret(credential: Json) -> str:
    """The Secret that an access credential names."""
    return text_at(credential, "sshPublicKey", "source", "secret", "secretName") or text_at(
        credential, "userPassword", "source", "secret", "secretName"
    )


def paths(volume: Mapping[str, Any]) -> tuple[str, ...]:
    """The pod's paths that a volume of the VMI is made from."""
    name = str(volume["name"])
    if any(kind in volume for kind in _MOUNTED):
        return (volume_path(name),)
    if "serviceAccount" in volume:
        return (TOKEN_PATH,)
    found: list[str] = []
    for kind in CLOUD_INIT:
        for part, key in ((USER_DATA, "secretRef"), (NETWORK_DATA, "networkDataSecretRef")):
            if text_at(volume, kind, key, "name"):
                found.append(secret_path(name, part))
    return tuple(found)


def cloud_init_credentials(vmi: Json) -> list[Json]:
    """The SSH keys that reach the guest by its cloud-init medium."""
    return [
        one
        for one in list_at(vmi, "spec", "accessCredentials")
        if {"noCloud", "configDrive"} & set(object_at(one, "sshPublicKey", "propagationMethod"))
    ]


def read(directory: int) -> Files:
    """All files of a mount.

    Raises:
        PayloadError: too many or too large. OSError: it cannot be read.
    """
    found: dict[str, bytes] = {}
    _read_into(found, directory, "", 0)
    return found


def _read_into(found: dict[str, bytes], directory: int, prefix: str, depth: int) -> None:
    for name in sorted(os.listdir(directory)):
        if name.startswith(".."):
            continue  # the projection's own machinery
        path = f"{prefix}{name}"
        descriptor = linux.openat2(directory, name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, resolve=_RESOLVE)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                if depth == MAX_DEPTH:
                    raise PayloadError(f"{path} lies more than {MAX_DEPTH} directories deep")
                _read_into(found, descriptor, f"{path}/", depth + 1)
            elif stat.S_ISREG(mode):
                found[path] = _content(descriptor, path)
        finally:
            os.close(descriptor)
        if len(found) > MAX_FILES:
            raise PayloadError(f"it has more than {MAX_FILES} files")


def _content(descriptor: int, path: str) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise PayloadError(f"{path} has more than {MAX_FILE_BYTES} bytes")
    return content

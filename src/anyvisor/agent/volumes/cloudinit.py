"""The media that cloud-init reads at boot: NoCloud and ConfigDrive.

Layouts: https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html and .../configdrive.html
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anyvisor.agent.volumes.payloads import Files
from anyvisor.api.meta import text_at

# https://kubevirt.io/user-guide: inline data is limited, larger data belongs into a Secret.
MAX_INLINE_BYTES = 2048
_MAX_DATA_BYTES = 1024 * 1024
LABELS: Final = {"cloudInitNoCloud": "cidata", "cloudInitConfigDrive": "config-2"}
SECRETS: Final = {"userData": "secretRef", "networkData": "networkDataSecretRef"}


class CloudInitError(ValueError):
    """The source's data cannot be used; `field` is relative to the volume source. `retry`: a Secret may change."""

    def __init__(self, field: str, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.field, self.retry = field, retry


@dataclass(frozen=True, slots=True)
class Instance:
    """What the medium says of the machine itself."""

    id: str
    hostname: str
    uuid: str = ""
    public_keys: Sequence[str] = ()


def medium(kind: str, source: Mapping[str, Any], secrets: Mapping[str, Files], instance: Instance) -> dict[str, bytes]:
    """The files of a cloud-init volume; `secrets` by the field that names them.

    Raises:
        CloudInitError: data is missing, no base64, or too large.
    """
    user, network = (_data(source, name, secrets) for name in ("userData", "networkData"))
    if kind == "cloudInitConfigDrive":
        return _config_drive(user, network, instance)
    return _no_cloud(user, network, instance)


def _keys(instance: Instance) -> dict[str, str]:
    return {str(index): key for index, key in enumerate(instance.public_keys)}


def _no_cloud(user: bytes, network: bytes, instance: Instance) -> dict[str, bytes]:
    meta: dict[str, Any] = {"instance-id": instance.id, "local-hostname": instance.hostname}
    if instance.public_keys:
        meta["public-keys"] = _keys(instance)
    files = {"meta-data": json.dumps(meta).encode(), "user-data": user}
    return {**files, "network-config": network} if network else files


def _config_drive(user: bytes, network: bytes, instance: Instance) -> dict[str, bytes]:
    meta: dict[str, Any] = {
        "instance_id": instance.id,
        "local_hostname": instance.hostname,
        "hostname": instance.hostname,
        "uuid": instance.uuid or instance.id,
    }
    if instance.public_keys:
        meta["public_keys"] = _keys(instance)
    files = {"openstack/latest/meta_data.json": json.dumps(meta).encode(), "openstack/latest/user_data": user}
    return {**files, "openstack/latest/network_data.json": network} if network else files


def _data(source: Mapping[str, Any], name: str, secrets: Mapping[str, Files]) -> bytes:
    reference = SECRETS[name]
    if encoded := source.get(f"{name}Base64"):
        try:
            data = base64.b64decode("".join(str(encoded).split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise CloudInitError(f"{name}Base64", f"is not base64: {error}") from error
    elif reference in secrets:
        data = _of_secret(source, name, secrets[reference])
    else:
        data = str(source.get(name) or "").encode()
    if len(data) > _MAX_DATA_BYTES:
        raise CloudInitError(name, f"holds {len(data)} bytes, of at most {_MAX_DATA_BYTES}")
    return data


def _of_secret(source: Mapping[str, Any], name: str, files: Files) -> bytes:
    for key in (name.lower(), name):
        if key in files:
            return files[key]
    reference = SECRETS[name]
    secret = text_at(source, reference, "name")
    raise CloudInitError(
        reference, f"Secret {secret!r} has neither a key {name.lower()} nor {name}; add one of them", retry=True
    )


def public_keys(files: Files) -> list[str]:
    """The SSH keys in a Secret: one a line, in each of its keys."""
    found = [
        line.strip()
        for _, content in sorted(files.items())
        for line in content.decode(errors="replace").splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    return list(dict.fromkeys(found))

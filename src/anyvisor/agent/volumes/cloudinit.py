"""The NoCloud medium: a small ISO 9660 image that cloud-init reads at boot.

Layout: https://cloudinit.readthedocs.io/en/latest/reference/datasources/nocloud.html
"""

import base64
import binascii
import io
import json
from dataclasses import dataclass
from typing import Any

# https://kubevirt.io/user-guide: inline data is limited, larger data belongs into a Secret.
MAX_INLINE_BYTES = 2048
_MAX_DATA_BYTES = 1024 * 1024


class CloudInitError(ValueError):
    """The source's data cannot be used; `field` is relative to the volume source."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class NoCloud:
    """The files of a NoCloud medium."""

    user_data: bytes
    network_data: bytes
    meta_data: bytes


def from_source(source: dict[str, Any], instance_id: str, hostname: str) -> NoCloud:
    """The files for a `cloudInitNoCloud` volume source with inline data.

    Raises:
        CloudInitError: data is no base64, or too large.
    """
    meta = json.dumps({"instance-id": instance_id, "local-hostname": hostname}).encode()
    return NoCloud(_inline(source, "userData"), _inline(source, "networkData"), meta)


def _inline(source: dict[str, Any], name: str) -> bytes:
    if encoded := source.get(f"{name}Base64"):
        try:
            data = base64.b64decode("".join(str(encoded).split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise CloudInitError(f"{name}Base64", f"is not base64: {error}") from error
    else:
        data = str(source.get(name) or "").encode()
    if len(data) > _MAX_DATA_BYTES:
        raise CloudInitError(name, f"holds {len(data)} bytes, of at most {_MAX_DATA_BYTES}")
    return data


def iso(files: NoCloud) -> bytes:
    """The medium as an ISO 9660 image with Joliet and Rock Ridge names and the volume id `cidata`."""
    import pycdlib

    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident="cidata")
    wanted = [("meta-data", "METADATA", files.meta_data), ("user-data", "USERDATA", files.user_data)]
    if files.network_data:
        wanted.append(("network-config", "NETCONF", files.network_data))
    for name, short, content in wanted:
        image.add_fp(io.BytesIO(content), len(content), f"/{short}.;1", rr_name=name, joliet_path=f"/{name}")
    out = io.BytesIO()
    image.write_fp(out)
    image.close()
    return out.getvalue()

"""Volumes that the guest mounts as file systems: opened as directories, for a server beside the VMM.

What was configured (ConfigMaps and the like) is shared read-only, and changes under the guest as its object does.
"""

import os
from dataclasses import dataclass
from typing import Final

from anyvisor.agent.launchers import SharedDirectory
from anyvisor.agent.open_error import OpenError
from anyvisor.agent.volumes import hot, payloads
from anyvisor.agent.volumes.context import VolumeContext
from anyvisor.agent.volumes.source import ClaimError
from anyvisor.api.meta import Json, list_at, object_at

CONFIGURED: Final = ("configMap", "secret", "downwardAPI", "serviceAccount")
KINDS: Final = (*hot.CLAIM_KINDS, *CONFIGURED)


@dataclass(frozen=True, slots=True)
class Share:
    """A volume's directory, and the user namespace for its server, by the handles of their descriptors."""

    directory: str
    namespace: str
    read_only: bool


def shared_names(vmi: Json) -> list[str]:
    """The volumes that are shared, in the order of the file systems."""
    return [str(each["name"]) for each in list_at(vmi, "spec", "domain", "devices", "filesystems")]


def without_disk(vmi: Json) -> frozenset[str]:
    """The volumes that are shared and nothing else."""
    disks = {str(each["name"]) for each in list_at(vmi, "spec", "domain", "devices", "disks")}
    return frozenset(shared_names(vmi)) - disks


def kind_of(volume: Json) -> str:
    """What the volume is of; empty for what cannot be shared."""
    return next((kind for kind in KINDS if kind in volume), "")


def is_read_only(volume: Json) -> bool:
    """Whether the guest may only read it."""
    return kind_of(volume) in CONFIGURED or object_at(volume, "persistentVolumeClaim").get("readOnly") is True


async def open_shares(vmi: Json, context: VolumeContext, descriptors: dict[str, int]) -> dict[str, Share]:
    """Open all; the descriptors are added to those of the volumes.

    Raises:
        OpenError: with the field, the cause and the next step.
    """
    wanted = frozenset(shared_names(vmi))
    found: dict[str, Share] = {}
    for index, volume in enumerate(list_at(vmi, "spec", "volumes")):
        if volume["name"] in wanted:
            name, at = str(volume["name"]), f"spec.volumes[{index}]"
            share = Share(f"volume/{name}/directory", f"volume/{name}/namespace", is_read_only(volume))
            opened = await _open(vmi, volume, at, context, read_only=share.read_only)
            descriptors |= {share.directory: opened.directory, share.namespace: opened.namespace}
            found[name] = share
    return found


async def _open(vmi: Json, volume: Json, at: str, context: VolumeContext, *, read_only: bool) -> SharedDirectory:
    try:
        directory = await _directory(vmi, volume, at, context)
        try:
            return await context.share(directory, read_only=read_only)
        finally:
            os.close(directory)
    except ClaimError as error:
        raise OpenError(at, error.reason, str(error), retry=error.retry) from error
    except OSError as error:
        message = f"it cannot be shared with the guest: {error.strerror or error}; or attach it as a disk"
        raise OpenError(at, "VolumeNotReady", message, retry=True) from error


async def _directory(vmi: Json, volume: Json, at: str, context: VolumeContext) -> int:
    kind = kind_of(volume)
    if not kind:
        message = f"volume {volume['name']} has a source that cannot be shared; use one of {', '.join(KINDS)}"
        raise OpenError(at, "VolumeNotSupported", message, retry=False)
    if kind in CONFIGURED:
        return await context.mount(payloads.paths(volume)[0])
    return await context.claims.open_directory(vmi["metadata"]["namespace"], hot.claim_of(volume))

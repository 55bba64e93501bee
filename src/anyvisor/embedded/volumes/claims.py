"""The disks of bound claims; implements `agent.volumes.source.ClaimSource`."""

import asyncio
from dataclasses import dataclass

from anyvisor.agent.volumes.source import ClaimError, OpenedClaim
from anyvisor.api.meta import object_at, text_at
from anyvisor.api.quantity import QuantityError, parse_quantity
from anyvisor.embedded.volumes.disks import Disks
from anyvisor.embedded.volumes.names import PROVISIONER
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, NotFound
from anyvisor.kube.resources import PVCS, PVS


@dataclass(frozen=True, slots=True)
class LocalClaims:
    """Finds a claim's volume by the API, and its disk on this machine."""

    client: Client
    disks: Disks

    async def open(self, namespace: str, claim: str, *, read_only: bool) -> OpenedClaim:
        """The claim's disk. Raises ClaimError."""
        volume, size = await self._volume(namespace, claim)
        return await asyncio.to_thread(self.disks.open, volume, size, read_only=read_only)

    async def open_state(self, namespace: str, claim: str, file: str) -> int:
        """A file of the claim for writing, empty at first. Raises ClaimError."""
        volume, _ = await self._volume(namespace, claim)
        return await asyncio.to_thread(self.disks.open_state, volume, file)

    async def open_directory(self, namespace: str, claim: str) -> int:
        """The claim's own directory. Raises ClaimError."""
        volume, _ = await self._volume(namespace, claim)
        try:
            mode = text_at(await self.client.get(PVCS, claim, namespace), "spec", "volumeMode")
        except ApiError as error:
            raise ClaimError("VolumeNotReady", f"claim {claim} cannot be read: {error}") from error
        if mode == "Block":
            message = f"claim {claim} has the mode Block, which has no directory: attach it as a disk"
            raise ClaimError("VolumeNotSupported", message, retry=False)
        return await asyncio.to_thread(self.disks.open_directory, volume)

    async def _volume(self, namespace: str, claim: str) -> tuple[str, int]:
        try:
            found = await self.client.get(PVCS, claim, namespace)
            name = text_at(found, "spec", "volumeName")
            if text_at(found, "status", "phase") != "Bound" or not name:
                raise ClaimError("ClaimNotBound", f"claim {claim} has no volume yet: `kubectl describe pvc {claim}`")
            volume = await self.client.get(PVS, name)
            size = parse_quantity(object_at(volume, "spec", "capacity").get("storage", "")).value
        except NotFound as error:
            message = f"there is no claim {claim} in namespace {namespace}, or its volume is gone: create it"
            raise ClaimError("FailedPvcNotFound", message) from error
        except ApiError as error:
            raise ClaimError("VolumeNotReady", f"claim {claim} cannot be read: {error}") from error
        except QuantityError as error:
            raise ClaimError("VolumeNotReady", f"the volume of claim {claim} has no size: {error}") from error
        if text_at(volume, "spec", "csi", "driver") != PROVISIONER:
            message = f"volume {name} of claim {claim} is not one of this machine's; use storage class local"
            raise ClaimError("VolumeNotSupported", message, retry=False)
        return name, size

"""What outlives a run besides disks: the firmware's variables and the TPM's state, in a claim of the VM's own."""

from typing import Any, Final

from anyvisor.agent.open_error import OpenError
from anyvisor.agent.volumes.source import ClaimError, ClaimSource
from anyvisor.api.meta import list_at, namespace, object_at, text_at

VOLUME: Final = "persistent-state-for-this-vm"
"""Name under which the controller shows the claim in `status.volumeStatus`."""
_EFI: Final = ("spec", "domain", "firmware", "bootloader", "efi")
_TPM: Final = ("spec", "domain", "devices", "tpm")


def keeps_variables(vmi: dict[str, Any]) -> bool:
    """Whether the VMI wants its firmware's variables kept."""
    return object_at(vmi, *_EFI).get("persistent") is True


def keeps_tpm(vmi: dict[str, Any]) -> bool:
    """Whether the VMI has a TPM and wants its state kept."""
    tpm = object_at(vmi, *_TPM)
    return tpm.get("persistent") is True and tpm.get("enabled") is not False


async def open_file(vmi: dict[str, Any], claims: ClaimSource, file: str) -> int:
    """Open a file of the state's claim for writing; the descriptor is the caller's.

    Raises:
        OpenError: there is no claim yet, or it cannot be used.
    """
    at = ".".join(_EFI if file == "variables" else _TPM) + ".persistent"
    volumes = [each for each in list_at(vmi, "status", "volumeStatus") if each.get("name") == VOLUME]
    claim = text_at(volumes[0], "persistentVolumeClaimInfo", "claimName") if volumes else ""
    if not claim:
        raise OpenError(at, "BackendStorageNotReady", "the claim that keeps it is not made yet", retry=True)
    try:
        return await claims.open_state(namespace(vmi), claim, file)
    except ClaimError as error:
        raise OpenError(at, error.reason, str(error), retry=error.retry) from error

"""Firmware variables and TPM state: asked for by the VMI, kept in the claim that the controller shows."""

import os
from pathlib import Path
from typing import Any

import pytest

from anyvisor.agent.open_error import OpenError
from anyvisor.agent.volumes import state
from anyvisor.agent.volumes.source import ClaimError, OpenedClaim
from anyvisor.embedded.volumes.disks import Disks


class Claims:
    """The disks of this machine without an API."""

    def __init__(self, disks: Disks) -> None:
        self._disks = disks

    async def open(self, namespace: str, claim: str, *, read_only: bool) -> OpenedClaim:
        raise ClaimError("VolumeNotReady", "no disk is asked for here")

    async def open_state(self, namespace: str, claim: str, file: str) -> int:
        return self._disks.open_state(f"{namespace}-{claim}", file)

    async def open_directory(self, namespace: str, claim: str) -> int:
        return self._disks.open_directory(f"{namespace}-{claim}")


def vmi(efi: dict[str, Any] | None = None, tpm: dict[str, Any] | None = None, claim: str = "c") -> dict[str, Any]:
    domain = {"firmware": {"bootloader": {"efi": efi}}, "devices": {"tpm": tpm}}
    shown = {"name": state.VOLUME, "target": "", "persistentVolumeClaimInfo": {"claimName": claim}}
    return {
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"domain": domain},
        "status": {"volumeStatus": [{"name": "root"}, *([shown] if claim else [])]},
    }


@pytest.mark.parametrize(
    ("efi", "tpm", "variables", "kept"),
    [
        (None, None, False, False),
        ({}, {}, False, False),
        ({"persistent": True}, None, True, False),
        ({"persistent": False}, {"persistent": True}, False, True),
        (None, {"persistent": True, "enabled": False}, False, False),
    ],
)
def test_what_is_kept(efi: Any, tpm: Any, variables: bool, kept: bool) -> None:
    assert (state.keeps_variables(vmi(efi, tpm)), state.keeps_tpm(vmi(efi, tpm))) == (variables, kept)


async def test_a_file_is_the_same_one_at_the_next_start(tmp_path: Path) -> None:
    claims = Claims(Disks(tmp_path / "volumes"))
    first = await state.open_file(vmi(), claims, "variables")
    os.write(first, b"kept")
    os.close(first)
    again = await state.open_file(vmi(), claims, "variables")
    assert os.read(again, 10) == b"kept"
    os.close(again)
    assert (tmp_path / "volumes" / "ns-c" / "variables").stat().st_mode & 0o777 == 0o600


async def test_a_missing_claim_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(OpenError) as raised:
        await state.open_file(vmi(claim=""), Claims(Disks(tmp_path)), "tpm")
    assert raised.value.retry
    assert raised.value.field == "spec.domain.devices.tpm.persistent"


async def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "volumes" / "ns-c").mkdir(parents=True)
    (tmp_path / "volumes" / "ns-c" / "variables").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OpenError):
        await state.open_file(vmi(), Claims(Disks(tmp_path / "volumes")), "variables")
    assert not (tmp_path / "elsewhere").exists()

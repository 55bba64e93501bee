"""Which instances keep state over restarts."""

from typing import Any

import pytest

from anyvisor.controller.vmi.state_claim import is_needed

Json = dict[str, Any]


def vmi(devices: Json | None = None, efi: Json | None = None, tracking: str = "") -> Json:
    domain = {"devices": devices or {}, "firmware": {"bootloader": {"efi": efi}} if efi is not None else {}}
    status = {"changedBlockTracking": {"state": tracking}} if tracking else {}
    return {"metadata": {"name": "a"}, "spec": {"domain": domain}, "status": status}


@pytest.mark.parametrize(
    ("obj", "needed"),
    [
        (vmi(), False),
        (vmi(devices={"tpm": {}}), False),
        (vmi(devices={"tpm": {"persistent": True}}), True),
        (vmi(devices={"tpm": {"persistent": True, "enabled": False}}), False),
        (vmi(efi={}), False),
        (vmi(efi={"persistent": True}), True),
        (vmi(tracking="Initializing"), True),
        (vmi(tracking="Enabled"), True),
        (vmi(tracking="Disabled"), False),
    ],
)
def test_needed(obj: Json, *, needed: bool) -> None:
    assert is_needed(obj) is needed

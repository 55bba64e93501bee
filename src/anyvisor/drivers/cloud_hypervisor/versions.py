"""Which releases of Cloud Hypervisor the driver speaks with."""

import re
from typing import Final

from anyvisor.hri.errors import VmmFailed

FLOOR: Final = (53, 0)
"""The first release with an answer for each thing that the driver builds on: places of all devices by request, 404
for a machine that does not exist, the kept serial output, an API socket by descriptor that nobody else takes."""
_VERSION: Final = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.\d{1,4})?(?:[-+.].*)?")


def parse(text: str) -> tuple[int, int] | None:
    """Major and minor of `53.0.0`, `v53.0`, `v53.0-dirty`; None for anything else."""
    match = _VERSION.fullmatch(text.strip())
    return (int(match[1]), int(match[2])) if match else None


def too_old(text: str) -> str:
    """Why this version cannot be used; empty when it can."""
    found = parse(text)
    if found is None:
        return f"the version of Cloud Hypervisor is not understood: {text[:60]!r}; v{FLOOR[0]}.{FLOOR[1]} is needed"
    if found < FLOOR:
        return f"Cloud Hypervisor v{found[0]}.{found[1]} is too old; install v{FLOOR[0]}.{FLOOR[1]} or later"
    return ""


def check_version(text: str) -> None:
    """Raise VmmFailed when the version cannot be used."""
    if why := too_old(text):
        raise VmmFailed(why, retry="after_change")

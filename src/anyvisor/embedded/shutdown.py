"""Shut all guests down while the control plane is down: for the host's own shutdown.

Nothing is written to the API, so that the next start finds VMs that should run, and starts them anew. Each guest is
asked by the script that its agent left for exactly this; one that does not end in time is ended, its disks flushed.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.agent import script
from anyvisor.embedded.instance import Instance

FLUSH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one guest went down."""

    pod_uid: str
    clean: bool
    """It shut itself down."""


async def guests(instance: Instance, seconds: float, told: Callable[[Outcome], None]) -> list[Outcome]:
    """Shut down all guests of the instance at the same time; `told` hears of each as it ends."""
    places = sorted(instance.run_dir.glob("nodes/*/pods/*/l"))

    async def one(place: Path) -> Outcome | None:
        outcome = await _shut_down(place, seconds)
        if outcome is not None:
            told(outcome)
        return outcome

    found = await asyncio.gather(*(one(place) for place in places))
    return [outcome for outcome in found if outcome is not None]


async def _shut_down(place: Path, seconds: float) -> Outcome | None:
    """None: there is no guest."""
    try:
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if script.read(directory) is None:
            return None
        clean = await script.request(directory, max(seconds - FLUSH_SECONDS, 0.0))
        with contextlib.suppress(OSError):
            await script.finish(directory, FLUSH_SECONDS)
    finally:
        os.close(directory)
    return Outcome(place.parent.name, clean)

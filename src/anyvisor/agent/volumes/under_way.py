"""Changes of a running machine's volumes that are under way: what is tried again, and what is still to be told."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from anyvisor.agent.volumes.hot import Step
from anyvisor.api.meta import Json

FIRST_RETRY: Final = 2.0
LAST_RETRY: Final = 30.0


@dataclass(slots=True)
class Hotplug:
    """The changes of one machine that are under way, and what is to be told of them."""

    task: asyncio.Task[None] | None = None
    told: dict[str, Json] = field(default_factory=dict[str, Json])
    """Fields for entries of `status.volumeStatus`, by volume, until they are written."""
    unseen: dict[str, str] = field(default_factory=dict[str, str])
    """The phase that a volume had before we told another, until the object shows that."""
    failures: dict[Step, int] = field(default_factory=dict[Step, int])
    not_before: dict[Step, float] = field(default_factory=dict[Step, float])

    def written(self, fields: Mapping[str, Json]) -> None:
        """These are on the object now; what came meanwhile stays."""
        for name, entry in fields.items():
            if self.told.get(name) is entry:
                del self.told[name]

    def seen(self, phases: Mapping[str, str]) -> None:
        """The object's phases now; a volume whose phase we changed is let be until the change shows."""
        self.unseen = {name: before for name, before in self.unseen.items() if phases.get(name) == before}

    def failed(self, step: Step) -> bool:
        """Note when to try again; whether it failed for the first time."""
        failures = self.failures[step] = self.failures.get(step, 0) + 1
        self.not_before[step] = time.monotonic() + min(FIRST_RETRY * 2.0 ** min(failures - 1, 10), LAST_RETRY)
        return failures == 1

    def forget(self, step: Step) -> None:
        """It is done, or not wanted any more."""
        self.failures.pop(step, None)
        self.not_before.pop(step, None)

    def wait(self) -> float | None:
        """Seconds until the next change is tried again; None when there is none."""
        if not self.not_before:
            return None
        return max(min(self.not_before.values()) - time.monotonic(), 0.1)

    def close(self) -> None:
        """End what is under way; the guest keeps what it has."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

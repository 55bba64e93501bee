"""Changes of a running machine's volumes that are under way: what is tried again, and what is still to be told."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from anyvisor.agent.retries import Retries
from anyvisor.agent.volumes.hot import Step
from anyvisor.api.meta import Json


@dataclass(slots=True)
class Hotplug:
    """The changes of one machine that are under way, and what is to be told of them."""

    task: asyncio.Task[None] | None = None
    told: dict[str, Json] = field(default_factory=dict[str, Json])
    """Fields for entries of `status.volumeStatus`, by volume, until they are written."""
    unseen: dict[str, str] = field(default_factory=dict[str, str])
    """The phase that a volume had before we told another, until the object shows that."""
    retries: Retries[Step] = field(default_factory=Retries[Step])

    def written(self, fields: Mapping[str, Json]) -> None:
        """These are on the object now; what came meanwhile stays."""
        for name, entry in fields.items():
            if self.told.get(name) is entry:
                del self.told[name]

    def seen(self, phases: Mapping[str, str]) -> None:
        """The object's phases now; a volume whose phase we changed is let be until the change shows."""
        self.unseen = {name: before for name, before in self.unseen.items() if phases.get(name) == before}

    def close(self) -> None:
        """End what is under way; the guest keeps what it has."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

"""Keeps the host's packet rules at what the Services say. One per instance."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from anyvisor.agent.network.namespace import CommandError, run_nft
from anyvisor.api.meta import list_at, name, namespace, object_at, uid
from anyvisor.embedded.services.cache import ServiceCache
from anyvisor.embedded.services.rules import Ground, ruleset
from anyvisor.embedded.services.targets import ServedPort, served
from anyvisor.kube.events import EventKind, EventRecorder, Reference
from anyvisor.kube.resources import SERVICES

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1
"""Between two transactions, so that a burst of changes becomes one."""
RETRY_SECONDS: Final = 5.0


class ServiceProxy:
    """Writes the rules anew when they are others than before; says on each Service when they cannot be."""

    def __init__(self, cache: ServiceCache, events: EventRecorder, load: Callable[[str], None] = run_nft) -> None:
        self._cache = cache
        self._events = events
        self._load = load
        self._said: set[tuple[str, str]] = set()

    async def run(self, ground: Ground, changed: asyncio.Event) -> None:
        """Load the rules now and after each change, until cancelled."""
        loaded = ""
        while True:
            changed.clear()
            wanted = ruleset(ground, self.ports())
            wait = PAUSE_SECONDS
            if wanted != loaded:
                try:
                    await asyncio.to_thread(self._load, wanted)
                    loaded = wanted
                except CommandError as error:
                    log.warning("the rules of Services are not loaded: %s", error)
                    self.say(f"the host's packet rules could not be written: {error}")
                    wait = RETRY_SECONDS
                    changed.set()
            await asyncio.sleep(wait)
            await changed.wait()

    def ports(self) -> Sequence[ServedPort]:
        """All ports of all Services."""
        return [
            port
            for service in self._cache.services()
            for port in served(service, self._cache.slices(namespace(service), name(service)))
        ]

    def say(self, why: str) -> None:
        """Tell on each Service that has ports, once, why nothing reaches it."""
        for service in self._cache.services():
            if (uid(service), why) in self._said:
                continue
            self._said.add((uid(service), why))
            if object_at(service, "spec").get("type") != "ExternalName" and list_at(service, "spec", "ports"):
                about = Reference(SERVICES.api_version, SERVICES.kind, namespace(service), name(service), uid(service))
                self._events.record(about, EventKind.WARNING, "ServiceNotServed", why)

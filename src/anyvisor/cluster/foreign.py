"""Kinds of others that come after us: networks and importers that are installed while controllers run."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from anyvisor.api.meta import condition_is
from anyvisor.kube.client import Client
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import CRDS, Resource


@asynccontextmanager
async def newcomers(client: Client, kinds: Sequence[Resource]) -> AsyncGenerator[asyncio.Event]:
    """Tells by an event that one of the kinds is served which was not at the block's begin."""
    came = asyncio.Event()

    def seen(old: CachedObject | None, new: CachedObject | None) -> None:
        if new is not None and _is_served(new) and (old is None or not _is_served(old)):
            came.set()

    async with AsyncExitStack() as stack:
        informers = [Informer(client, CRDS, fields=f"metadata.name={kind.plural}.{kind.group}") for kind in kinds]
        for informer in informers:
            await stack.enter_async_context(informer)
            await informer.synced.wait()
            informer.on_change(seen)
        came.clear()  # what is there already was told too
        yield came


def _is_served(definition: CachedObject) -> bool:
    return condition_is(definition.json(), "Established")

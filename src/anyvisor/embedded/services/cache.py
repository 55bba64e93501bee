"""The Services and EndpointSlices of an instance, followed together."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

from anyvisor.api.meta import Json
from anyvisor.embedded.services.endpoints import SERVICE_LABEL
from anyvisor.kube.client import Client
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import ENDPOINT_SLICES, SERVICES

_BY_SERVICE: Final = "service"


def _service_of(found: CachedObject) -> tuple[str, ...]:
    name = (found.meta.labels or {}).get(SERVICE_LABEL, "")
    return (f"{found.meta.namespace}/{name}",) if name else ()


class ServiceCache:
    """What is known of them now."""

    def __init__(self, services: Informer, slices: Informer) -> None:
        self._services = services
        self._slices = slices

    def service(self, namespace: str, name: str) -> Json | None:
        """One Service."""
        found = self._services.get(namespace, name)
        return found.json() if found is not None else None

    def slices(self, namespace: str, name: str) -> list[Json]:
        """The EndpointSlices of a Service, whoever made them."""
        return [each.json() for each in self._slices.index(_BY_SERVICE, f"{namespace}/{name}")]

    def services(self) -> Iterator[Json]:
        """All Services, in the order of their names."""
        for found in sorted(self._services.values(), key=lambda each: each.key):
            yield found.json()


@asynccontextmanager
async def follow(client: Client, changed: Callable[[], None]) -> AsyncGenerator[ServiceCache]:
    """Follow them inside the block; `changed` is called for each change once all is known."""
    async with (
        Informer(client, SERVICES) as services,
        Informer(client, ENDPOINT_SLICES, indexes={_BY_SERVICE: _service_of}) as slices,
    ):
        await services.synced.wait()
        await slices.synced.wait()
        for informer in (services, slices):
            informer.on_change(lambda _old, _new: changed())
        yield ServiceCache(services, slices)

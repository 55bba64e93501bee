"""Keeps the components' certificates in Secrets, renews them, and tells the API server whom to trust.

Any number of gateways may do it at once: a Secret is changed only in the version that was read, and whoever loses
reads what the other wrote.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, resource_version, text_at
from anyvisor.cluster import certificates
from anyvisor.cluster.certificates import ForeignError, Names
from anyvisor.kube.client import Client, PatchType
from anyvisor.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from anyvisor.kube.informer import Informer
from anyvisor.kube.resources import SECRETS, Resource

log = logging.getLogger(__name__)

SECRET: Final = "anyvisor-certificates"  # noqa: S105 - a name
AGENT_SECRET: Final = "anyvisor-agent-tls"  # noqa: S105 - a name
LOOK_SECONDS: Final = 600.0
RETRY_SECONDS: Final = 2.0
_REGISTRATIONS: Final = "admissionregistration.k8s.io"
MUTATING: Final = Resource(
    _REGISTRATIONS, "v1", "mutatingwebhookconfigurations", namespaced=False, kind="MutatingWebhookConfiguration"
)
VALIDATING: Final = Resource(
    _REGISTRATIONS, "v1", "validatingwebhookconfigurations", namespaced=False, kind="ValidatingWebhookConfiguration"
)
API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "apiservices", namespaced=False, kind="APIService")
CONFIGURATION: Final = "anyvisor"
SERVICES: Final = (
    "v1.subresources.kubevirt.io",
    "v1alpha3.subresources.kubevirt.io",
    "v1alpha1.reviews.anyvisor.io",
)


@dataclass(slots=True)
class CertificateKeeper:
    """One gateway's care for the certificates; `reload` hears of each new state of the Secret."""

    client: Client
    names: Names
    reload: Callable[[dict[str, str]], None]
    foreign: str = ""
    """The Secret from which the gateway's own certificate comes, where somebody else makes that."""
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    current: dict[str, str] = field(default_factory=dict[str, str])
    loaded: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Keep everything current until cancelled."""
        changed = asyncio.Event()
        async with AsyncExitStack() as stack:
            for watched in self._watched():
                watched.on_change(lambda _old, _new: changed.set())
                await stack.enter_async_context(watched)
            while True:
                changed.clear()
                pause = LOOK_SECONDS
                try:
                    await self._once()
                except ApiError as error:
                    log.warning("certificates are not current, again soon: %s", error)
                    pause = RETRY_SECONDS
                except ForeignError as error:
                    log.error("Secret %s/%s: %s", self.names.namespace, self.foreign, error)
                try:
                    async with asyncio.timeout(pause):
                        await changed.wait()
                except TimeoutError:
                    continue

    def _watched(self) -> list[Informer]:
        """Everything that is kept: what is edited or replaced, by hand or by an upgrade, is put right at once."""
        secrets = [
            Informer(self.client, SECRETS, self.names.namespace, fields=f"metadata.name={name}")
            for name in (SECRET, AGENT_SECRET, self.foreign)
            if name
        ]
        webhooks = [
            Informer(self.client, kind, fields=f"metadata.name={CONFIGURATION}") for kind in (MUTATING, VALIDATING)
        ]
        services = [Informer(self.client, API_SERVICES, fields=f"metadata.name={name}") for name in SERVICES]
        return [*secrets, *webhooks, *services]

    async def _once(self) -> None:
        data = await self._secret()
        await self._agents(data)
        served, bundle = await self._served(data)
        if served != self.current:
            self.current = served
            self.reload(served)
            self.loaded.set()
        for resource in (MUTATING, VALIDATING):
            await self._webhooks(resource, bundle)
        for name in SERVICES:
            await self._api_service(name, bundle)

    async def _secret(self) -> dict[str, str]:
        """The Secret's data, made or renewed where that is due."""
        found = await self._get(SECRETS, SECRET, self.names.namespace)
        present = _data(found)
        wanted = certificates.renewed(present, self.names, self.now())
        if wanted == present:
            return present
        return _data(await self._write(SECRET, found, "Opaque", wanted))

    async def _served(self, data: dict[str, str]) -> tuple[dict[str, str], str]:
        """What the gateway uses, and the bundle by which the API server knows it. Raises ForeignError."""
        if not self.foreign:
            return data, data.get(certificates.BUNDLE, "")
        found = await self._get(SECRETS, self.foreign, self.names.namespace)
        if found is None:
            raise ForeignError(
                "there is none: have it made, or take certificates.gatewaySecret out of the chart's values"
            )
        own, bundle = certificates.from_elsewhere(_data(found), self.names, self.now())
        return data | own, bundle

    async def _agents(self, data: dict[str, str]) -> None:
        """What the agents' pods mount: their own certificate without the authority's key."""
        wanted = {
            "ca.crt": data[certificates.BUNDLE],
            "tls.crt": data[f"{certificates.AGENT}.crt"],
            "tls.key": data[f"{certificates.AGENT}.key"],
        }
        found = await self._get(SECRETS, AGENT_SECRET, self.names.namespace)
        if _data(found) != wanted:
            await self._write(AGENT_SECRET, found, "kubernetes.io/tls", wanted)

    async def _write(self, name: str, found: Json | None, kind: str, data: dict[str, str]) -> Json:
        metadata: Json = {"name": name, "namespace": self.names.namespace}
        labels: Json = {"app.kubernetes.io/part-of": "anyvisor"}
        try:
            if found is None:
                return await self.client.create(
                    SECRETS, {"metadata": {**metadata, "labels": labels}, "type": kind, "data": data}
                )
            metadata["resourceVersion"] = resource_version(found)
            gone: dict[str, str | None] = dict.fromkeys(_data(found))
            patch: Json = {"metadata": metadata, "data": gone | data}
            return await self.client.patch(SECRETS, name, self.names.namespace, patch)
        except (AlreadyExists, Conflict) as error:
            log.info("Secret %s was written by another gateway: %s", name, error)
            return await self.client.get(SECRETS, name, self.names.namespace)

    async def _webhooks(self, resource: Resource, bundle: str) -> None:
        found = await self._get(resource, CONFIGURATION)
        if found is None:
            return
        patch = [
            {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
            for index, hook in enumerate(list_at(found, "webhooks"))
            if text_at(hook, "clientConfig", "caBundle") != bundle
        ]
        if patch:
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version(found)}
            await self.client.patch(resource, CONFIGURATION, None, [test, *patch], PatchType.JSON)
            log.info("%s %s trusts our authority from now on", resource.kind, CONFIGURATION)

    async def _api_service(self, name: str, bundle: str) -> None:
        found = await self._get(API_SERVICES, name)
        if found is not None and text_at(found, "spec", "caBundle") != bundle:
            await self.client.patch(API_SERVICES, name, None, {"spec": {"caBundle": bundle}})
            log.info("APIService %s trusts our authority from now on", name)

    async def _get(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        try:
            return await self.client.get(resource, name, namespace)
        except NotFound:
            return None


def _data(secret: Json | None) -> dict[str, str]:
    return {key: str(value) for key, value in object_at(secret or {}, "data").items()}

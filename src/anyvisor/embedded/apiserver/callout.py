"""Calls of others' HTTPS endpoints with a review in and a review out: admission and conversion webhooks."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.codec import decode_json, encode_json
from anyvisor.embedded.apiserver.endpoints import UnreachableError, resolve, tls_context
from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.values import as_object
from anyvisor.kube.connector import Connector

Json = dict[str, Any]

MAX_ANSWER = 64 << 20


class Callout:
    """Posts reviews to the endpoint that a `clientConfig` names, by URL or by Service."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def post(self, config: Json, review: Json, seconds: float, limit: int = MAX_ANSWER) -> Json:
        """Return the answer to a review. Raises UnreachableError for every failure."""
        try:
            return await self._post(config, review, seconds, limit)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error

    async def _post(self, config: Json, review: Json, seconds: float, limit: int) -> Json:
        url, name = self._address(config)
        tls = tls_context(str(config.get("caBundle") or ""))
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=Connector(), auto_decompress=True)
        async with (
            asyncio.timeout(seconds),
            self._session.post(
                url,
                data=encode_json(review),
                headers={"content-type": "application/json"},
                ssl=tls,
                server_hostname=name or None,
                allow_redirects=False,
            ) as response,
        ):
            parts: list[bytes] = []
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > limit:
                    raise UnreachableError(f"it answered more than {limit} bytes")
                parts.append(chunk)
            if response.status != 200:
                raise UnreachableError(f"it answered {response.status}")
            return as_object(decode_json(b"".join(parts)))

    def _address(self, config: Json) -> tuple[str, str]:
        url = config.get("url")
        if url:
            if urlsplit(str(url)).scheme != "https":
                raise UnreachableError("the url of a webhook must be https")
            return str(url), ""
        service = object_at(config, "service")
        port = int(service.get("port") or 443)
        endpoint = resolve(self._state, str(service.get("namespace")), str(service.get("name")), port)
        path = "/" + str(service.get("path") or "").lstrip("/")
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"https://{host}:{endpoint.port}{path}", endpoint.server_name

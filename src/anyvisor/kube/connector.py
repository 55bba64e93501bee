"""Connections of aiohttp whose sockets the event loop makes itself.

Given a socket that was made elsewhere, uvloop closes its descriptor a second time when the TLS handshake on it fails
(https://github.com/MagicStack/uvloop/issues/653): by then the number may be a guest's disk or another connection.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

KEEPALIVE_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A connection notices within a minute that the other side is gone, as a watch may be silent."""


class Connector(aiohttp.TCPConnector):
    """A TCPConnector that hands no socket to the loop; addresses are tried one after the other."""

    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: Sequence[Any],
        client_error: type[Exception] = aiohttp.ClientConnectorError,
        **kwargs: Any,
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        *others, last = addr_infos
        kwargs["client_error"] = client_error
        for info in others:
            try:
                return await self._connect(info, *args, **kwargs)
            except client_error:
                continue
        return await self._connect(last, *args, **kwargs)

    async def _connect(self, info: Any, *args: Any, **kwargs: Any) -> tuple[asyncio.Transport, ResponseHandler]:
        family, _, _, _, address = info
        place = {"host": address[0], "port": address[1], "family": family, "flags": socket.AI_NUMERICHOST}
        transport, protocol = await self._wrap_existing_connection(*args, **place, **kwargs)
        made = transport.get_extra_info("socket")
        for level, option, value in KEEPALIVE_OPTIONS:
            made.setsockopt(level, option, value)
        return transport, protocol

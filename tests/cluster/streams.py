"""Consoles through the official API server: websockets over its aggregation layer, as client-go opens them."""

import asyncio
import re
import ssl
from pathlib import Path

import aiohttp

from tests.cluster.kit.control_plane import ControlPlane

COUNTER = re.compile(r"ANYVISOR t=(\d+)")
PROTOCOL = "plain.kubevirt.io"


def console(plane: ControlPlane, name: str, seconds: float, typed: bytes = b"", until: str = "") -> str:
    """What a VMI's console shows within some seconds or until a text comes, replay first."""
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{name}/console"
    return asyncio.run(_read(plane, path, seconds, typed, until.encode()))


def counter(plane: ControlPlane, name: str) -> int:
    """The newest counter value of the tiny guest; -1 when none was seen."""
    values = COUNTER.findall(console(plane, name, 3.0))
    return int(values[-1]) if values else -1


async def _read(plane: ControlPlane, path: str, seconds: float, typed: bytes, until: bytes) -> str:
    try:
        return await _session(plane, path, seconds, typed, until)
    finally:
        # As aiohttp asks for: TLS connections end a moment after their session.
        await asyncio.sleep(0.1)


async def _session(plane: ControlPlane, path: str, seconds: float, typed: bytes, until: bytes) -> str:
    found = bytearray()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        url = f"https://127.0.0.1:{plane.api_port}{path}"
        async with session.ws_connect(url, ssl=_tls(plane.pki), protocols=(PROTOCOL,)) as stream:
            assert stream.protocol == PROTOCOL
            if typed:
                await stream.send_bytes(typed)
            try:
                async with asyncio.timeout(seconds):
                    async for message in stream:
                        found += message.data
                        if until and until in found:
                            break
            except TimeoutError:
                pass
    return found.decode(errors="replace")


def _tls(pki: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context

"""What was acknowledged survives: kill -9 in the middle of writes, and a file that lost its end."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp

from tests.contract.apiserver.conftest import Server, launch
from tests.contract.apiserver.pki import Pki

Json = dict[str, Any]
WRITERS = 16
WRITES = 10_000


def url(server: Server, name: str = "") -> str:
    base = f"https://127.0.0.1:{server.port}/api/v1/namespaces/default/configmaps"
    return f"{base}/{name}" if name else base


async def write_until_it_dies(server: Server, tls: ssl.SSLContext, run: int, enough: int) -> dict[str, str]:
    """Create objects from many clients; kill the server after `enough` answers. Returns what was acknowledged."""
    acknowledged: dict[str, str] = {}

    async def writer(session: aiohttp.ClientSession, index: int) -> None:
        for number in range(WRITES // WRITERS):
            name = f"r{run}-w{index}-{number}"
            body = {"metadata": {"name": name}, "data": {"n": str(number)}}
            try:
                async with session.post(url(server), json=body, ssl=tls) as response:
                    answer: Json = await response.json()
            except (aiohttp.ClientError, ConnectionError):
                return
            assert response.status == 201, answer
            acknowledged[name] = answer["metadata"]["resourceVersion"]
            if len(acknowledged) == enough:
                server.process.kill()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as group:
        for index in range(WRITERS):
            group.create_task(writer(session, index))
    return acknowledged


async def stored(server: Server, tls: ssl.SSLContext) -> dict[str, str]:
    async with aiohttp.ClientSession() as session, session.get(url(server), ssl=tls) as response:
        items: list[Json] = (await response.json())["items"]
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


async def test_kill_9_in_the_middle_of_writes_loses_nothing_acknowledged(tmp_path: Path, pki: Pki):
    acknowledged: dict[str, str] = {}
    for run, enough in enumerate((400, 400, WRITES // 2)):
        server = launch(tmp_path, pki)
        tls = server.client_tls()
        have = await stored(server, tls)
        assert acknowledged.items() <= have.items()
        assert len(have) - len(acknowledged) <= WRITERS * run, "only writes in flight may be there unacknowledged"
        assert len(set(have.values())) == len(have), "no version is used twice"
        acknowledged |= await write_until_it_dies(server, tls, run, enough)
        server.process.wait()
    server = launch(tmp_path, pki)
    assert acknowledged.items() <= (await stored(server, server.client_tls())).items()
    server.process.terminate()
    assert server.process.wait(10) == 0


async def test_a_torn_end_of_the_log_is_ignored(tmp_path: Path, pki: Pki):
    server = launch(tmp_path, pki)
    acknowledged = await write_until_it_dies(server, server.client_tls(), 0, enough=100)
    server.process.wait()
    wal = tmp_path / "control" / "state.db-wal"
    with wal.open("ab") as file:
        file.write(b"\x5a" * 3000)
    server = launch(tmp_path, pki)
    assert acknowledged.items() <= (await stored(server, server.client_tls())).items()
    server.process.terminate()
    assert server.process.wait(10) == 0


def test_the_database_and_key_are_private(server: Server):
    control = server.root / "control"
    assert control.stat().st_mode & 0o077 == 0
    for path in control.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    assert json.dumps(sorted(path.name for path in control.iterdir())).count("signing.key") == 1

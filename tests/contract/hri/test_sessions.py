"""This core speaks with each recorded driver as the core of its time did, and understands its answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from anyvisor.hri.client import HriClient
from anyvisor.hri.versions import MINOR
from tests.contract.hri.sessions import FOLDER, Replay, scenario

RECORDED: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def test_there_is_one_for_this_minor():
    assert any(recorded["minor"] == MINOR for recorded in RECORDED.values())


@pytest.mark.parametrize("name", RECORDED)
async def test_a_recorded_driver_is_spoken_to_as_ever(rundir: Path, name: str):
    recorded = RECORDED[name]
    async with HriClient(rundir / "hri") as client:
        replay = Replay(recorded["exchanges"])
        server = replay.server(client)
        await server.start(path=str(rundir / "hri"))
        try:
            seen = await scenario(client)
        finally:
            server.close()
            await server.wait_closed()
    assert replay.surprises == []
    assert json.loads(json.dumps(seen)) == recorded["seen"]

"""This core speaks with each recorded driver as the core of its time did, and understands its answers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

import anyvisor
from anyvisor.hri.client import HriClient
from anyvisor.hri.v1.machine_pb2 import ApplyRequest, PrepareResponse
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import DescriptorToken
from anyvisor.hri.versions import MINOR
from tests.contract.hri.sessions import FOLDER, Replay, Subject, scenario

RECORDED: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def test_there_is_one_of_each_driver_for_this_minor():
    of_this = {name.rpartition("-")[0] for name, recorded in RECORDED.items() if recorded["minor"] == MINOR}
    shipped = {path.parent.name.replace("_", "-") for path in Path(anyvisor.__file__).parent.rglob("manifest.yaml")}
    assert of_this >= shipped
    assert "uml" in of_this, "the example in another language"


def subject_of(recorded: dict[str, Any]) -> Subject:
    """What the driver was asked for; its VMM is not needed again."""

    async def begin(_prepared: PrepareResponse) -> Sequence[DescriptorToken]:
        return ()

    change = ParseDict(recorded["change"], ApplyRequest()) if recorded["change"] else None
    return Subject(ParseDict(recorded["spec"], Machine()), recorded["needs"], change, begin)


@pytest.mark.parametrize("name", RECORDED)
async def test_a_recorded_driver_is_spoken_to_as_ever(rundir: Path, name: str):
    recorded = RECORDED[name]
    async with HriClient(rundir / "hri") as client:
        replay = Replay(recorded["exchanges"])
        server = replay.server(client)
        await server.start(path=str(rundir / "hri"))
        try:
            seen = await scenario(client, subject_of(recorded))
        finally:
            server.close()
            await server.wait_closed()
    assert replay.surprises == []
    assert json.loads(json.dumps(seen)) == recorded["seen"]

"""Long lists: others have their turns while one is made, and it is the same as one that is made at once."""

import asyncio
import json
from typing import Any

import pytest

from anyvisor.embedded.apiserver.builtin import built_in
from anyvisor.embedded.apiserver.codec import negotiate
from anyvisor.embedded.apiserver.respond import TURN, View

Json = dict[str, Any]
RESOURCE = next(one for one in built_in() if one.plural == "configmaps")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def stored(number: int) -> bytes:
    metadata = {"name": f"c{number}", "namespace": "default", "creationTimestamp": "2020-01-01T00:00:00Z"}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}
    return json.dumps(obj, separators=(",", ":")).encode()


@pytest.mark.parametrize("count", [0, 1, TURN, TURN + 1, 3 * TURN])
@pytest.mark.parametrize(
    ("accept", "kind", "member"),
    [
        ("application/json", "ConfigMapList", "items"),
        (TABLE, "Table", "rows"),
        (METADATA, "PartialObjectMetadataList", "items"),
    ],
)
async def test_a_list_has_every_object_in_order(accept: str, kind: str, member: str, count: int):
    view = View(RESOURCE, negotiate(accept))
    made: Json = json.loads(await view.many([stored(number) for number in range(count)], {"resourceVersion": "7"}))
    assert made["kind"] == kind
    assert made["metadata"] == {"resourceVersion": "7"}
    shown = [one.get("object", one)["metadata"]["name"] for one in made[member]]
    assert shown == [f"c{number}" for number in range(count)]
    if kind == "Table":
        assert made["columnDefinitions"][0]["name"] == "Name"
        assert all(row["cells"][0] == f"c{number}" for number, row in enumerate(made["rows"]))


async def test_a_list_is_yaml_for_who_asks_for_it():
    view = View(RESOURCE, negotiate("application/yaml"))
    assert b"kind: ConfigMapList" in await view.many([stored(1)], {})


async def test_others_have_their_turns_while_a_long_table_is_made():
    view = View(RESOURCE, negotiate(TABLE))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await view.many([stored(number) for number in range(10 * TURN)], {})
    assert turns >= 9
    task.cancel()

"""What goes with an object, what holds it, and what is left: owner references and the policies of a deletion."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.inprocess import InProcessTransport
from anyvisor.embedded.apiserver.server import ApiServer
from tests.contract.apiserver.inside import ADMIN, CMS, Json, call, watch

CRDS: list[Json] = json.loads(Path(__file__).with_name("crds.json").read_text())
MACHINES = "/apis/test.anyvisor.io/v1/namespaces/default/machines"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[InProcessTransport]:
    async with ApiServer(ServerConfig(tmp_path / "s.db", crds=CRDS)) as server:
        yield server.inprocess(ADMIN)


async def config_map(transport: InProcessTransport, name: str, *owners: Json, hold: bool = False, **more: Any) -> Json:
    metadata: Json = {"name": name, "ownerReferences": [reference(owner, **more) for owner in owners]}
    if hold:
        metadata["finalizers"] = ["example.com/hold"]
    status, made = await call(transport, "POST", CMS, {"metadata": metadata})
    assert status == 201, made
    return made


def reference(owner: Json, **more: Any) -> Json:
    metadata = owner["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"], **more}


async def delete(transport: InProcessTransport, name: str, policy: str) -> None:
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
    assert (await call(transport, "DELETE", f"{CMS}/{name}", options))[0] == 200


async def release(transport: InProcessTransport, name: str) -> None:
    body = {"metadata": {"finalizers": None}}
    assert (await call(transport, "PATCH", f"{CMS}/{name}", body, content_type=MERGE))[0] == 200


async def get(transport: InProcessTransport, name: str) -> Json | None:
    status, found = await call(transport, "GET", f"{CMS}/{name}")
    return found if status == 200 else None


async def gone(transport: InProcessTransport, *names: str) -> None:
    """Wait for the end of objects, by watching."""
    stream = await watch(transport, "resourceVersion=1")
    left = set(names)
    while left:
        kind, obj = await stream.next()
        if kind == "DELETED":
            left.discard(obj["metadata"]["name"])
    await stream.close()


async def test_foreground_waits_for_those_that_block_and_for_no_others(transport: InProcessTransport):
    owner = await config_map(transport, "owner")
    await config_map(transport, "blocks", owner, hold=True, blockOwnerDeletion=True)
    await config_map(transport, "does-not", owner, hold=True)
    grandchild_owner = await get(transport, "blocks")
    assert grandchild_owner is not None
    await config_map(transport, "grandchild", grandchild_owner, blockOwnerDeletion=True)
    await delete(transport, "owner", "Foreground")
    await gone(transport, "grandchild")
    waiting = await get(transport, "owner")
    assert waiting is not None
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    for name in ("blocks", "does-not"):
        held = await get(transport, name)
        assert held is not None
        assert held["metadata"]["deletionTimestamp"], name
    await release(transport, "blocks")
    await gone(transport, "blocks", "owner")
    assert await get(transport, "does-not"), "it holds itself, not its owner"
    await release(transport, "does-not")
    await gone(transport, "does-not")


async def test_what_has_another_owner_stays_and_forgets_the_one_that_went(transport: InProcessTransport):
    first, second = await config_map(transport, "first"), await config_map(transport, "second")
    await config_map(transport, "both", first, second, blockOwnerDeletion=True)
    await delete(transport, "first", "Foreground")
    await gone(transport, "first")
    stream = await watch(transport, "fieldSelector=metadata.name%3Dboth")
    while True:
        _, both = await stream.next()
        if len(both["metadata"]["ownerReferences"]) == 1:
            break
    await stream.close()
    assert both["metadata"]["ownerReferences"][0]["name"] == "second"
    await delete(transport, "second", "Background")
    await gone(transport, "second", "both")


async def test_orphans_stay_without_their_owner(transport: InProcessTransport):
    owner = await config_map(transport, "owner")
    await config_map(transport, "child", owner, blockOwnerDeletion=True)
    await delete(transport, "owner", "Orphan")
    await gone(transport, "owner")
    child = await get(transport, "child")
    assert child is not None
    assert "ownerReferences" not in child["metadata"]
    assert "deletionTimestamp" not in child["metadata"]


async def test_an_owner_that_never_was_takes_its_dependent_with_it(transport: InProcessTransport):
    absent: Json = {"metadata": {"name": "absent", "uid": "00000000-0000-0000-0000-000000000000"}}
    await config_map(transport, "lost", absent)
    await gone(transport, "lost")


async def test_a_definition_is_terminating_until_its_last_object_is_gone(transport: InProcessTransport):
    body: Json = {"metadata": {"name": "m", "finalizers": ["example.com/hold"]}, "spec": {"cores": 1}}
    assert (await call(transport, "POST", MACHINES, body))[0] == 201
    stream = await watch(transport, "fieldSelector=metadata.name%3Dmachines.test.anyvisor.io", DEFINITIONS)
    machines = await watch(transport, "resourceVersion=1", MACHINES)
    await call(transport, "DELETE", f"{DEFINITIONS}/machines.test.anyvisor.io")
    held: Json = {"metadata": {}}
    while "deletionTimestamp" not in held["metadata"]:
        _, held = await machines.next()
    await machines.close()
    while True:
        kind, definition = await stream.next()
        conditions = {item["type"]: item["status"] for item in definition["status"]["conditions"]}
        if conditions.get("Terminating") == "True":
            break
    assert kind == "MODIFIED"
    assert definition["metadata"]["deletionTimestamp"]
    assert definition["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert (await call(transport, "GET", f"{MACHINES}/m"))[0] == 200
    status, answer = await call(transport, "POST", MACHINES, {"metadata": {"name": "late"}, "spec": {}})
    assert (status, answer["reason"]) == (405, "MethodNotAllowed")
    assert answer["message"] == "create not allowed while custom resource definition is terminating"
    await call(transport, "PATCH", f"{MACHINES}/m", {"metadata": {"finalizers": None}}, content_type=MERGE)
    while kind != "DELETED":
        kind, _ = await stream.next()
    await stream.close()
    assert (await call(transport, "GET", MACHINES))[0] == 404


def scale_to(replicas: int) -> Json:
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": replicas}}


async def test_scale_reads_and_writes_one_number(transport: InProcessTransport):
    spec = {"cores": 1, "replicas": 2}
    assert (await call(transport, "POST", MACHINES, {"metadata": {"name": "m"}, "spec": spec}))[0] == 201
    _, scale = await call(transport, "GET", f"{MACHINES}/m/scale")
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
    stale = dict(scale["metadata"])
    scale["spec"]["replicas"] = 5
    status, scale = await call(transport, "PUT", f"{MACHINES}/m/scale", scale)
    assert (status, scale["spec"]) == (200, {"replicas": 5})
    body: Json = {"metadata": stale, "spec": {"replicas": 6}}
    assert (await call(transport, "PUT", f"{MACHINES}/m/scale", body))[0] == 409
    for metadata in ({"name": "other"}, {"namespace": "other"}):
        status, answer = await call(transport, "PUT", f"{MACHINES}/m/scale", {"metadata": metadata, **scale_to(6)})
        assert (status, "on the URL" in answer["message"]) == (400, True)
    patch = {"spec": {"replicas": 7}}
    _, scale = await call(transport, "PATCH", f"{MACHINES}/m/scale", patch, content_type=MERGE)
    assert scale["spec"] == {"replicas": 7}
    bad = {"spec": {"replicas": -1}}
    status, answer = await call(transport, "PATCH", f"{MACHINES}/m/scale", bad, content_type=MERGE)
    assert (status, answer["reason"]) == (422, "Invalid")
    _, machine = await call(transport, "GET", f"{MACHINES}/m")
    assert (machine["spec"]["cores"], machine["spec"]["replicas"]) == (1, 7)
    assert machine["metadata"]["generation"] == 3
    assert [
        item["fieldsV1"] for item in machine["metadata"]["managedFields"] if item.get("subresource") == "scale"
    ] == [{"f:spec": {"f:replicas": {}}}]
    await call(transport, "PATCH", f"{MACHINES}/m/scale", {"spec": {"replicas": 0}}, content_type=MERGE)
    _, machine = await call(transport, "GET", f"{MACHINES}/m")
    assert "f:replicas" not in json.dumps(machine["metadata"]["managedFields"]), "a scale shows no zero, nobody owns it"
    wrong = [{"op": "test", "path": "/spec/replicas", "value": 5}]
    json_patch = "application/json-patch+json"
    status, answer = await call(transport, "PATCH", f"{MACHINES}/m/scale", wrong, content_type=json_patch)
    assert (status, answer["reason"]) == (422, "Invalid"), "no internal error"

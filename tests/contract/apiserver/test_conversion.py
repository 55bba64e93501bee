"""Custom resources in several versions, converted by a webhook."""

import base64
import copy
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, Invalid
from anyvisor.kube.resources import Resource
from tests.contract.apiserver.pki import Pki
from tests.contract.apiserver.test_webhooks import Backend, backend

__all__ = ["backend"]

Json = dict[str, Any]
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False, kind="CustomResourceDefinition"
)  # fmt: skip
V1 = Resource("example.io", "v1", "disks", namespaced=True, kind="Disk")
V2 = Resource("example.io", "v2", "disks", namespaced=True, kind="Disk")


def version(name: str, *, storage: bool, **fields: Json) -> Json:
    schema: Json = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def definition(pki: Pki, backend: Backend) -> Json:
    config = {
        "url": f"https://localhost:{backend.port}/convert",
        "caBundle": base64.b64encode(pki.ca.cert.read_bytes()).decode(),
    }
    return {
        "metadata": {"name": "disks.example.io"},
        "spec": {
            "group": "example.io",
            "scope": "Namespaced",
            "names": {"plural": "disks", "kind": "Disk"},
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": config},
            },
            "versions": [
                version("v1", storage=True, size={"type": "string"}),
                version("v2", storage=False, bytes={"type": "integer"}),
            ],
        },
    }


def converted(obj: Json, wanted: str) -> Json:
    """v1 has `size: "8Ki"`, v2 has `bytes: 8192`."""
    made = copy.deepcopy(obj)
    made["apiVersion"] = wanted
    spec = made["spec"]
    if wanted.endswith("/v2"):
        spec["bytes"] = int(spec.pop("size").removesuffix("Ki")) * 1024
    else:
        spec["size"] = f"{spec.pop('bytes') // 1024}Ki"
    return made


def answer(asked: Json) -> Json:
    objects = [converted(obj, asked["desiredAPIVersion"]) for obj in asked["objects"]]
    return {"convertedObjects": objects, "result": {"status": "Success"}}


@pytest.fixture
async def client(tmp_path: Path):
    async with ApiServer(ServerConfig(tmp_path / "s.db")) as server:
        yield Client(server.inprocess(Identity("admin", ("system:masters",))))


@pytest.fixture
async def disks(client: Client, backend: Backend, pki: Pki) -> Client:
    backend.answers["/convert"] = answer
    await client.create(CRDS, definition(pki, backend))
    await client.create(V1, {"metadata": {"name": "a"}, "spec": {"size": "8Ki"}}, namespace="default")
    await client.create(V2, {"metadata": {"name": "b"}, "spec": {"bytes": 4096}}, namespace="default")
    return client


async def test_each_version_shows_every_object_in_its_own_form(disks: Client):
    both = {name: (await disks.get(V2, name, "default"))["spec"] for name in "ab"}
    assert both == {"a": {"bytes": 8192}, "b": {"bytes": 4096}}
    assert [item["spec"] for item in (await disks.list(V1, "default"))["items"]] == [{"size": "8Ki"}, {"size": "4Ki"}]
    assert [item["spec"] for item in (await disks.list(V2, "default"))["items"]] == [{"bytes": 8192}, {"bytes": 4096}]


async def test_what_is_converted_once_is_kept(disks: Client, backend: Backend):
    await disks.list(V2, "default")
    before = len(backend.asked)
    for _ in range(3):
        await disks.list(V2, "default")
    assert len(backend.asked) == before


async def test_writes_through_the_other_version(disks: Client):
    changed = await disks.patch(V2, "a", "default", {"spec": {"bytes": 1024}})
    assert changed["spec"] == {"bytes": 1024}
    assert (await disks.get(V1, "a", "default"))["spec"] == {"size": "1Ki"}
    config = {"apiVersion": "example.io/v2", "kind": "Disk", "metadata": {"name": "c", "namespace": "default"}}
    applied = await disks.apply(V2, {**config, "spec": {"bytes": 2048}}, field_manager="m")
    assert applied["spec"] == {"bytes": 2048}
    await disks.delete(V2, "c", "default")
    assert len((await disks.list(V1, "default"))["items"]) == 2


async def test_watches_see_their_version(disks: Client):
    version = (await disks.list(V2, "default"))["metadata"]["resourceVersion"]
    await disks.patch(V1, "a", "default", {"spec": {"size": "2Ki"}})
    stream = disks.watch(V2, "default", resource_version=version)
    event = await anext(stream)
    assert event.object.json()["spec"] == {"bytes": 2048}
    await stream.aclose()


async def test_a_webhook_that_fails_or_lies_is_told(disks: Client, backend: Backend):
    backend.answers["/convert"] = lambda _asked: {"result": {"status": "Failed", "message": "no idea"}}
    with pytest.raises(ApiError, match=r"conversion webhook for example.io/v1, Kind=Disk failed: no idea"):
        await disks.get(V2, "a", "default")
    backend.answers["/convert"] = lambda asked: {
        "convertedObjects": [
            {**converted(obj, asked["desiredAPIVersion"]), "metadata": {"name": "other"}} for obj in asked["objects"]
        ],
        "result": {"status": "Success"},
    }
    with pytest.raises(ApiError, match=r"it changed metadata.name"):
        await disks.get(V2, "a", "default")
    assert (await disks.get(V1, "a", "default"))["spec"] == {"size": "8Ki"}


async def test_the_storage_version_moves_and_the_old_one_cannot_go_while_it_is_stored(disks: Client):
    crd = await disks.get(CRDS, "disks.example.io")
    for item in crd["spec"]["versions"]:
        item["storage"] = item["name"] == "v2"
    await disks.update(CRDS, crd)
    assert (await disks.get(V1, "b", "default"))["spec"] == {"size": "4Ki"}
    for name in "ab":
        await disks.patch(V1, name, "default", {"metadata": {"labels": {"moved": "yes"}}})
    assert [item["spec"] for item in (await disks.list(V2, "default"))["items"]] == [{"bytes": 8192}, {"bytes": 4096}]
    crd = await disks.get(CRDS, "disks.example.io")
    assert crd["status"]["storedVersions"] == ["v1", "v2"]
    crd["spec"]["versions"] = crd["spec"]["versions"][1:]
    with pytest.raises(Invalid, match=r"missing from spec\.versions"):
        await disks.update(CRDS, crd)


async def test_a_webhook_must_be_named(client: Client, backend: Backend, pki: Pki):
    crd = definition(pki, backend)
    crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v9"]}}
    with pytest.raises(Invalid, match="clientConfig"):
        await client.create(CRDS, crd)

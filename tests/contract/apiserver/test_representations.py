"""What a client accepts is what it gets: metadata alone, JSON in the place of protobuf, and refusals that say why."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.inprocess import InProcessTransport
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.kube.transport import Request
from tests.contract.apiserver.inside import ADMIN, CMS, Json, call, watch

PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PROTOBUF_PARTIAL = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{PARTIAL_LIST}"


@pytest.fixture
async def transport(tmp_path: Path) -> AsyncIterator[InProcessTransport]:
    async with ApiServer(ServerConfig(tmp_path / "s.db")) as server:
        transport = server.inprocess(ADMIN)
        body = {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v"}}
        assert (await call(transport, "POST", CMS, body))[0] == 201
        yield transport


@pytest.mark.parametrize("accept", [PARTIAL_LIST, PROTOBUF_PARTIAL])
async def test_metadata_lists(transport: InProcessTransport, accept: str):
    _, found = await call(transport, "GET", CMS, accept=accept)
    assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    (item,) = found["items"]
    assert set(item) == {"kind", "apiVersion", "metadata"}
    assert item["metadata"]["labels"] == {"x": "1"}


async def test_metadata_of_one_object(transport: InProcessTransport):
    _, found = await call(transport, "GET", f"{CMS}/a", accept=PARTIAL)
    assert (found["kind"], set(found)) == ("PartialObjectMetadata", {"kind", "apiVersion", "metadata"})


async def test_metadata_watches_tell_every_change_and_their_bookmark(transport: InProcessTransport):
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = await watch(transport, query, accept=PARTIAL)
    kind, obj = await stream.next()
    assert (kind, obj["kind"], obj["metadata"]["name"]) == ("ADDED", "PartialObjectMetadata", "a")
    kind, obj = await stream.next()
    assert (kind, obj["kind"]) == ("BOOKMARK", "PartialObjectMetadata")
    assert obj["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    merge = "application/merge-patch+json"
    await call(transport, "PATCH", f"{CMS}/a", {"metadata": {"labels": {"x": "2"}}}, content_type=merge)
    await call(transport, "DELETE", f"{CMS}/a")
    told: list[tuple[str, Json]] = [await stream.next() for _ in range(2)]
    assert [(kind, set(obj), obj["metadata"]["labels"]) for kind, obj in told] == [
        ("MODIFIED", {"kind", "apiVersion", "metadata"}, {"x": "2"}),
        ("DELETED", {"kind", "apiVersion", "metadata"}, {"x": "2"}),
    ]
    await stream.close()


@pytest.mark.parametrize(
    ("accept", "status", "content_type"),
    [
        (f"{PROTOBUF},application/json", 200, "application/json"),
        (f"{PROTOBUF};q=1,application/json;q=0.5,*/*;q=0.1", 200, "application/json"),
        (f"{PROTOBUF},application/yaml", 200, "application/yaml"),
        (PROTOBUF, 406, "application/json"),
        ("application/cbor", 406, "application/json"),
        ("text/html", 406, "application/json"),
        ("*/*", 200, "application/json"),
        ("", 200, "application/json"),
    ],
)
@pytest.mark.parametrize("path", [CMS, f"{CMS}/a"])
async def test_negotiation(transport: InProcessTransport, path: str, accept: str, status: int, content_type: str):
    response = await transport.send(Request("GET", path, "", {"accept": accept}))
    assert response.status == status
    assert response.headers["content-type"].partition(";")[0] == content_type
    await response.read()


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize(
    "plural",
    [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ],
)
async def test_policies_are_refused_with_what_to_use_instead(transport: InProcessTransport, plural: str, method: str):
    path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
    status, answer = await call(transport, method, path, {"metadata": {"name": "p"}} if method == "POST" else None)
    assert (status, answer["kind"], answer["reason"]) == (404, "Status", "NotFound")
    assert "no policy would be enforced; use a ValidatingWebhookConfiguration" in answer["message"]
    _, listed = await call(transport, "GET", "/apis/admissionregistration.k8s.io/v1")
    assert plural not in {item["name"] for item in listed["resources"]}, "clients that look are not misled"

"""The client against HTTP: paths, bodies, errors, watches."""

from contextlib import aclosing

import pytest

from anyvisor.kube import errors
from anyvisor.kube.client import Client, EventType, PatchType, Propagation
from anyvisor.kube.config import ClientConfig
from anyvisor.kube.http import HttpTransport
from anyvisor.kube.resources import NODES, PODS, VMS, Resource
from tests.fakekube import FakeServer


async def test_verbs_reach_the_right_path_with_the_right_body(server: FakeServer, client: Client) -> None:
    created = await client.create(PODS, {"metadata": {"name": "a", "namespace": "default"}})
    assert created["metadata"]["resourceVersion"] == "101"
    await client.patch(PODS, "a", "default", {"status": {"phase": "Running"}}, subresource="status")
    read = await client.get(PODS, "a", "default")
    read["spec"] = {"nodeName": "n"}
    await client.update(PODS, read)
    await client.apply(PODS, {"metadata": {"name": "a", "namespace": "default"}, "spec": {}})
    await client.delete(PODS, "a", "default", propagation=Propagation.FOREGROUND, grace=0, uid="uid-a")
    path = "/api/v1/namespaces/default/pods"
    assert [(method, where) for method, where, _, _ in server.calls] == [
        ("POST", path),
        ("PATCH", f"{path}/a/status"),
        ("GET", f"{path}/a"),
        ("PUT", f"{path}/a"),
        ("PATCH", f"{path}/a"),
        ("DELETE", f"{path}/a"),
    ]
    assert server.calls[0][3]["kind"] == "Pod"
    assert server.calls[4][2] == {"fieldManager": "anyvisor", "force": "true"}
    assert server.headers[4]["content-type"] == PatchType.APPLY.value
    assert server.calls[5][3] == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "uid-a"},
    }


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "path"),
    [
        (NODES, None, "n1", "/api/v1/nodes/n1"),
        (VMS, None, None, "/apis/kubevirt.io/v1/virtualmachines"),
        (VMS, "a", "b", "/apis/kubevirt.io/v1/namespaces/a/virtualmachines/b"),
        (NODES, "ignored", "system:x/..", "/api/v1/nodes/system%3Ax%2F.."),
    ],
)
def test_paths(resource: Resource, namespace: str | None, name: str | None, path: str) -> None:
    assert resource.path(namespace, name) == path


@pytest.mark.parametrize(("namespace", "name"), [(None, "a"), ("", "a"), ("ns", ""), ("ns", ".."), ("..", "a")])
def test_a_path_that_would_mean_something_else_is_refused(namespace: str | None, name: str) -> None:
    with pytest.raises(ValueError, match=r"is no name of|is namespaced"):
        PODS.path(namespace, name)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (500, "InternalError", errors.ServerError),
    ],
)
async def test_errors_have_the_type_of_their_meaning(
    server: FakeServer, client: Client, code: int, reason: str, kind: type[errors.ApiError]
) -> None:
    status = {
        "kind": "Status",
        "reason": reason,
        "message": "because",
        "details": {"causes": [{"field": "f"}]},
    }
    server.failures.append((code, status, {}))
    with pytest.raises(errors.ApiError) as caught:
        await client.get(NODES, "n")
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.causes) == ("because", [{"field": "f"}])


async def test_a_throttled_request_is_sent_again_when_the_server_says_when(server: FakeServer, client: Client) -> None:
    server.put("nodes", "n", "")
    server.failures.append((429, {"reason": "TooManyRequests"}, {"retry-after": "0"}))
    assert (await client.get(NODES, "n"))["metadata"]["name"] == "n"
    server.failures.append((429, {"reason": "TooManyRequests", "message": "later"}, {"retry-after": "3600"}))
    with pytest.raises(errors.TooManyRequests) as caught:
        await client.get(NODES, "n")
    assert caught.value.retry_after == 3600


async def test_nobody_there_is_unreachable() -> None:
    transport = HttpTransport(ClientConfig("http://127.0.0.1:1"))
    with pytest.raises(errors.Unreachable, match=r"127\.0\.0\.1:1 does not answer"):
        await Client(transport).get(NODES, "n")
    await transport.close()


async def test_lists_come_in_pages(server: FakeServer, client: Client) -> None:
    for number in range(5):
        server.put("pods", f"p{number}")
    pages = [page async for page in client.list_pages(PODS, page_size=2)]
    assert [[item.meta.name for item in page.items] for page in pages] == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert pages[-1].resource_version == "105"


async def test_a_watch_yields_events_and_bookmarks(server: FakeServer, client: Client) -> None:
    server.put("pods", "a")
    async with aclosing(client.watch(PODS, resource_version="100", labels="x=y")) as events:
        first = await anext(events)
        server.bookmark("pods")
        second = await anext(events)
        server.remove("pods", "a")
        third = await anext(events)
    assert [first.type, second.type, third.type] == [EventType.ADDED, EventType.BOOKMARK, EventType.DELETED]
    assert third.object.key == ("default", "a")
    assert server.calls[0][2]["allowWatchBookmarks"] == "true"
    assert server.calls[0][2]["labelSelector"] == "x=y"


@pytest.mark.parametrize(
    "garbage", [b"{]\n", b'{"type":"ADDED"}\n', b'{"type":"NEW","object":{}}\n', b'{"type":1,"object":{}}\n']
)
async def test_what_is_no_event_is_an_error_with_a_cause(server: FakeServer, client: Client, garbage: bytes) -> None:
    server.garbage = garbage
    with pytest.raises(errors.ServerError, match="an event of a watch"):
        _ = [event async for event in client.watch(PODS)]


async def test_an_error_event_is_raised(server: FakeServer, client: Client) -> None:
    server.compacted, server.gone_as_event = 100, True
    with pytest.raises(errors.Gone):
        _ = [event async for event in client.watch(PODS, resource_version="5")]

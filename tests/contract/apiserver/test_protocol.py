"""Lists, watches and negotiation on the wire, through the in-process transport."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import ANONYMOUS, ApiRequest, Identity
from anyvisor.embedded.apiserver.inprocess import InProcessTransport
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.kube.client import Client, PatchType
from anyvisor.kube.errors import AlreadyExists, Conflict, Forbidden, Gone, Invalid, NotFound
from anyvisor.kube.informer import Informer
from anyvisor.kube.resources import CONFIG_MAPS, NODES, PODS, SECRETS, Resource
from anyvisor.kube.transport import Request
from tests.contract.apiserver.inside import ADMIN, CMS, call, watch

Json = dict[str, Any]
MACHINES = Resource("test.anyvisor.io", "v1", "machines", namespaced=True, kind="Machine")
CRDS: list[Json] = json.loads(Path(__file__).with_name("crds.json").read_text())
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False, kind="CustomResourceDefinition"
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(ServerConfig(tmp_path / "s.db", crds=CRDS)) as running:
        yield running


@pytest.fixture
def transport(server: ApiServer) -> InProcessTransport:
    return server.inprocess(ADMIN)


@pytest.fixture
def client(transport: InProcessTransport) -> Client:
    return Client(transport)


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": data}, "data": data}


async def test_our_own_client_and_informer(client: Client):
    async with Informer(client, MACHINES, namespace="default") as informer:
        await informer.synced.wait()
        made = await client.create(MACHINES, {"metadata": {"name": "a"}, "spec": {"cores": 1}}, namespace="default")
        with pytest.raises(AlreadyExists):
            await client.create(MACHINES, {"metadata": {"name": "a"}, "spec": {}}, namespace="default")
        with pytest.raises(Invalid) as caught:
            await client.create(MACHINES, {"metadata": {"name": "b"}, "spec": {"cores": 0}}, namespace="default")
        assert caught.value.causes[0]["field"] == "spec.cores"
        seen = asyncio.Event()
        informer.on_change(lambda _old, new: seen.set() if new is None else None)
        patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"a": "b"}}}
        await client.patch(MACHINES, "a", "default", patch, PatchType.MERGE)
        with pytest.raises(Conflict):
            await client.patch(MACHINES, "a", "default", patch, PatchType.MERGE)
        await client.delete(MACHINES, "a", "default")
        async with asyncio.timeout(5):
            await seen.wait()
        with pytest.raises(NotFound):
            await client.get(MACHINES, "a", "default")


async def test_watch_from_a_version_sees_every_change_once(client: Client, transport: InProcessTransport):
    start = (await call(transport, "GET", CMS))[1]["metadata"]["resourceVersion"]
    stream = await watch(transport, f"resourceVersion={start}")
    for value in "abc":
        await client.apply(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "default"}, "data": {"v": value}})
    await client.delete(CONFIG_MAPS, "c", "default")
    events = [await stream.next() for _ in range(4)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))
    again = await watch(transport, f"resourceVersion={versions[1]}")
    assert [(await again.next())[0] for _ in range(2)] == ["MODIFIED", "DELETED"]
    await stream.close()
    await again.close()


async def test_watch_list_ends_its_initial_events_with_a_bookmark(client: Client, transport: InProcessTransport):
    await client.create(CONFIG_MAPS, config_map("a"), namespace="default")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    stream = await watch(transport, query)
    assert (await stream.next())[0] == "ADDED"
    kind, bookmark = await stream.next()
    assert kind == "BOOKMARK"
    assert bookmark["kind"] == "ConfigMap"
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await client.create(CONFIG_MAPS, config_map("b"), namespace="default")
    assert (await stream.next())[1]["metadata"]["name"] == "b"
    await stream.close()
    status, _ = await call(transport, "GET", f"{CMS}?watch=1&sendInitialEvents=true")
    assert status == 422


async def test_an_object_that_leaves_the_selector_is_deleted_for_the_watcher(
    client: Client, transport: InProcessTransport
):
    await client.create(CONFIG_MAPS, config_map("a", app="x"), namespace="default")
    stream = await watch(transport, "labelSelector=app%3Dx")
    assert (await stream.next())[0] == "ADDED"
    changed = await client.patch(CONFIG_MAPS, "a", "default", {"metadata": {"labels": {"app": "y"}}}, PatchType.MERGE)
    kind, obj = await stream.next()
    assert kind == "DELETED"
    assert obj["metadata"]["labels"] == {"app": "x"}, "the last state that matched"
    assert obj["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
    await stream.close()


async def test_watch_ends_at_its_timeout_with_a_bookmark_and_too_old_is_gone(
    client: Client, transport: InProcessTransport
):
    stream = await watch(transport, "timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion=1")
    with pytest.raises(StopAsyncIteration):
        while True:
            await stream.next()
    with pytest.raises(Gone):
        async for _ in client.watch(PODS, resource_version="999999999"):
            pass


async def test_pages_are_a_consistent_snapshot(client: Client, transport: InProcessTransport):
    for index in range(5):
        await client.create(CONFIG_MAPS, config_map(f"c{index}"), namespace="default")
    _, first = await call(transport, "GET", f"{CMS}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 3
    await client.delete(CONFIG_MAPS, "c3", "default")
    await client.create(CONFIG_MAPS, config_map("c33"), namespace="default")
    names: list[str] = [item["metadata"]["name"] for item in first["items"]]
    token = first["metadata"]["continue"]
    while token:
        _, page = await call(transport, "GET", f"{CMS}?limit=2&continue={token}")
        names += [item["metadata"]["name"] for item in page["items"]]
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        token = page["metadata"].get("continue", "")
    assert names == ["c0", "c1", "c2", "c3", "c4"]
    version = first["metadata"]["resourceVersion"]
    _, exact = await call(transport, "GET", f"{CMS}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert [item["metadata"]["name"] for item in exact["items"]] == names
    assert (await call(transport, "GET", f"{CMS}?continue=Zm9yZ2Vk"))[0] == 400


async def test_tables_and_metadata(client: Client, transport: InProcessTransport):
    await client.create(CONFIG_MAPS, config_map("a", x="y"), namespace="default")
    table_type = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    _, table = await call(transport, "GET", CMS, accept=table_type)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["a", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, bare = await call(transport, "GET", f"{CMS}?includeObject=None", accept=table_type)
    assert "object" not in bare["rows"][0]
    partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    _, metadata = await call(transport, "GET", CMS, accept=partial)
    assert metadata["kind"] == "PartialObjectMetadataList"
    assert set(metadata["items"][0]) == {"apiVersion", "kind", "metadata"}
    stream = await watch(transport, "", accept=table_type)
    kind, row = await stream.next()
    assert (kind, row["kind"], row["rows"][0]["cells"][0]) == ("ADDED", "Table", "a")
    await stream.close()


async def test_nothing_is_answered_without_authentication(server: ApiServer):
    async def ask(path: str) -> int:
        return (await server.handler.handle(ApiRequest(Request("GET", path), ANONYMOUS))).status

    for path in ("/api", "/apis", "/version", CMS, "/openapi/v3", "/metrics", "/nothing", "/"):
        assert await ask(path) == 401, path
    for path in ("/healthz", "/livez", "/readyz"):
        assert await ask(path) == 200, path


async def test_rights_follow_the_bindings_at_once(server: ApiServer, client: Client):
    jane = Client(server.inprocess(Identity("jane")))
    with pytest.raises(Forbidden, match='User "jane" cannot list resource "configmaps"'):
        await jane.list(CONFIG_MAPS, namespace="default")
    roles = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", namespaced=True, kind="RoleBinding")
    binding: Json = {
        "metadata": {"name": "jane"},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }
    await client.create(roles, binding, namespace="default")
    await jane.list(CONFIG_MAPS, namespace="default")
    with pytest.raises(Forbidden):
        await jane.create(CONFIG_MAPS, config_map("x"), namespace="default")
    with pytest.raises(Forbidden):
        await jane.list(CONFIG_MAPS, namespace="kube-system")
    await client.delete(roles, "jane", "default")
    with pytest.raises(Forbidden):
        await jane.list(CONFIG_MAPS, namespace="default")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b'{"metadata": 1}', 400),
        (b'{"metadata": {"name": "Upper"}}', 422),
        (b'{"metadata": {"name": "a/b"}}', 422),
        (b'{"metadata": {}}', 422),
        (b'{"metadata": {"name": "a", "labels": {"x": 1}}}', 400),
        (b'{"metadata": {"name": "a", "labels": {"-": "x"}}}', 422),
        (b'{"kind": "Pod", "metadata": {"name": "a"}}', 400),
        (b'{"metadata": {"name": "a", "namespace": "other"}}', 400),
        (b'{"metadata": {"name": "a"}, "data": {"../x": "y"}}', 422),
        (b'{"metadata": {"name": "a"}, "data": ' + b'{"x":' * 200 + b"1" + b"}" * 200 + b"}", 400),
        (b'"' + b"x" * (4 << 20) + b'"', 413),
    ],
)
async def test_hostile_bodies_are_refused(transport: InProcessTransport, body: bytes, status: int):
    response = await transport.send(Request("POST", CMS, "", {"content-type": "application/json"}, body))
    answer: Json = json.loads(await response.read())
    assert (response.status, answer["kind"]) == (status, "Status"), answer
    assert answer["message"]


async def test_yaml_bodies_and_answers(transport: InProcessTransport):
    text = b"metadata: {name: y}\ndata: {when: 2026-01-01, on: 'on'}\n"
    headers = {"content-type": "application/yaml", "accept": "application/yaml"}
    response = await transport.send(Request("POST", CMS, "", headers, text))
    assert response.status == 201
    answer = await response.read()
    assert b"when: '2026-01-01'" in answer
    assert b"'true': 'on'" in answer
    bomb = b"a: &a [x,x]\nb: [*a,*a]\n"
    response = await transport.send(Request("POST", CMS, "", headers, bomb))
    assert response.status == 400
    assert b"aliases" in await response.read()


async def test_generate_name_and_no_op_updates(client: Client):
    made = await client.create(CONFIG_MAPS, {"metadata": {"generateName": "g-"}}, namespace="default")
    name = made["metadata"]["name"]
    assert name.startswith("g-")
    assert len(name) == 7
    same = await client.patch(CONFIG_MAPS, name, "default", {"metadata": {"labels": None}}, PatchType.MERGE)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_generation_counts_changes_of_the_spec_alone(client: Client):
    await client.create(MACHINES, {"metadata": {"name": "a"}, "spec": {"cores": 1}}, namespace="default")
    steps: list[tuple[Json, str | None, int]] = [
        ({"metadata": {"labels": {"a": "b"}}}, None, 1),
        ({"status": {"phase": "x"}}, "status", 1),
        ({"spec": {"cores": 2}}, None, 2),
        ({"spec": {"cores": 2}}, None, 2),
    ]
    for patch, subresource, generation in steps:
        obj = await client.patch(MACHINES, "a", "default", patch, PatchType.MERGE, subresource=subresource)
        assert obj["metadata"]["generation"] == generation, patch


async def test_limits_metrics_and_audit(tmp_path: Path):
    audited: list[Json] = []
    gate = asyncio.Event()

    async def slow_log(_pod: Json, _query: Any) -> AsyncIterator[bytes]:
        await gate.wait()
        raise AssertionError

    config = ServerConfig(
        tmp_path / "s.db", audit=audited.append, max_requests_per_user=1, max_watches=1, pod_log=slow_log
    )
    async with ApiServer(config) as server:
        admin, other = server.inprocess(ADMIN), server.inprocess(Identity("other", ("system:masters",)))
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        assert (await call(admin, "POST", "/api/v1/namespaces/default/pods", pod))[0] == 201
        blocked = asyncio.create_task(call(admin, "GET", "/api/v1/namespaces/default/pods/p/log"))
        await asyncio.sleep(0)
        status, refused = await call(admin, "GET", CMS)
        assert (status, refused["reason"]) == (429, "TooManyRequests")
        assert (await call(other, "GET", CMS))[0] == 200, "others go on"
        blocked.cancel()
        stream = await watch(other, "")
        response = await other.send(Request("GET", CMS, "watch=1"))
        assert response.status == 429
        await stream.close()
        again = await watch(other, "")
        await again.close()
        text = (await (await other.send(Request("GET", "/metrics"))).read()).decode()
        assert 'apiserver_request_total{code="429",group="",resource="",verb="list"} 1.0' in text
        assert 'apiserver_request_total{code="200",group="",resource="configmaps",verb="list"} 1.0' in text
        assert "apiserver_registered_watchers 0.0" in text
    event = audited[0]
    assert (event["verb"], event["user"]["username"], event["objectRef"]["resource"]) == ("create", "admin", "pods")
    assert event["responseStatus"]["code"] == 201


async def test_a_node_rules_its_own_pods_alone(server: ApiServer, client: Client):
    def pod(name: str, secret: str) -> Json:
        volume = {"name": "v", "secret": {"secretName": secret}}
        return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}], "volumes": [volume]}}

    for name, node in (("mine", "n1"), ("other", "n2")):
        await client.create(SECRETS, {"metadata": {"name": f"s-{name}"}}, namespace="default")
        await client.create(PODS, pod(name, f"s-{name}"), namespace="default")
        body = {"target": {"kind": "Node", "name": node}}
        await client.call("POST", PODS.path("default", name, "binding"), body=body)
    node = Client(server.inprocess(Identity("system:node:n1", ("system:nodes",))))
    running = {"status": {"phase": "Running"}}
    await node.patch(PODS, "mine", "default", running, PatchType.MERGE, subresource="status")
    with pytest.raises(Forbidden, match=r"can only modify pods with spec\.nodeName set to itself"):
        await node.patch(PODS, "other", "default", running, PatchType.MERGE, subresource="status")
    assert await node.get(SECRETS, "s-mine", "default")
    with pytest.raises(Forbidden):
        await node.get(SECRETS, "s-other", "default")
    with pytest.raises(Forbidden):
        await node.list(SECRETS, namespace="default")
    with pytest.raises(Forbidden, match="not allowed to modify node"):
        await node.create(NODES, {"metadata": {"name": "n2"}})
    await node.create(NODES, {"metadata": {"name": "n1"}})


async def test_quota_and_limits(client: Client):
    quota = Resource("", "v1", "resourcequotas", namespaced=True, kind="ResourceQuota")
    ranges = Resource("", "v1", "limitranges", namespaced=True, kind="LimitRange")
    hard = {"pods": "2", "requests.memory": "1Gi", "count/machines.test.anyvisor.io": "1"}
    await client.create(quota, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, namespace="default")
    limit = {"type": "Container", "defaultRequest": {"memory": "600Mi"}, "max": {"cpu": "2"}, "default": {"cpu": "1"}}
    await client.create(ranges, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}, namespace="default")

    def pod(name: str, **resources: Json) -> Json:
        return {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]},
        }

    made = await client.create(PODS, pod("a"), namespace="default")
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1"},
        "requests": {"memory": "600Mi", "cpu": "1"},
    }
    with pytest.raises(Forbidden, match=r"exceeded quota: q, requested: requests\.memory=600Mi, used: "):
        await client.create(PODS, pod("b"), namespace="default")
    with pytest.raises(Forbidden, match="maximum cpu usage per Container is 2, but limit is 3"):
        await client.create(PODS, pod("b", limits={"cpu": "3"}, requests={"memory": "1Mi"}), namespace="default")
    await client.create(MACHINES, {"metadata": {"name": "m"}, "spec": {}}, namespace="default")
    with pytest.raises(Forbidden, match="exceeded quota"):
        await client.create(MACHINES, {"metadata": {"name": "n"}, "spec": {}}, namespace="default")
    many = (client.create(PODS, pod(f"p{i}", requests={"memory": "1Mi"}), namespace="default") for i in range(5))
    outcomes = await asyncio.gather(*many, return_exceptions=True)
    assert sum(isinstance(outcome, dict) for outcome in outcomes) == 1, "the second pod of two"
    async with asyncio.timeout(5):
        async for event in client.watch(quota, namespace="default"):
            assert event
            status: Json = (await client.get(quota, "q", "default")).get("status", {})
            if status.get("used", {}).get("pods") == "2":
                break


async def test_definitions_with_taken_names_or_broken_rules(client: Client):
    definition = copy.deepcopy(CRDS[0])
    definition["metadata"]["name"] = "engines.test.anyvisor.io"
    definition["spec"]["names"] = {"plural": "engines", "singular": "engine", "kind": "Machine"}
    made = await client.create(DEFINITIONS, definition)
    conditions = {item["type"]: item["status"] for item in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "False", "Established": "False"}
    await client.delete(DEFINITIONS, "engines.test.anyvisor.io")
    await client.list(MACHINES, namespace="default")
    definition["spec"]["names"] = {"plural": "engines", "singular": "engine", "kind": "Engine"}
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["x-kubernetes-validations"] = [{"rule": "self.unheardOf()"}]
    with pytest.raises(Invalid, match=r"unheardOf\(\) is not available in this server"):
        await client.create(DEFINITIONS, definition)
    schema["x-kubernetes-validations"] = [{"rule": "self.spec.cores < 10 || self.metadata.name == 'big'"}]
    await client.create(DEFINITIONS, definition)
    engines = Resource("test.anyvisor.io", "v1", "engines", namespaced=True, kind="Engine")
    with pytest.raises(Invalid, match=r"failed rule: self\.spec\.cores < 10"):
        await client.create(engines, {"metadata": {"name": "a"}, "spec": {"cores": 20}}, namespace="default")
    await client.create(engines, {"metadata": {"name": "big"}, "spec": {"cores": 20}}, namespace="default")


async def test_versions_of_one_definition_show_the_same_objects(client: Client, transport: InProcessTransport):
    definition: Json = await client.get(DEFINITIONS, "machines.test.anyvisor.io")
    newer = copy.deepcopy(definition["spec"]["versions"][0])
    newer["name"], newer["storage"] = "v2", True
    definition["spec"]["versions"][0]["storage"] = False
    definition["spec"]["versions"].append(newer)
    await client.create(MACHINES, {"metadata": {"name": "old"}, "spec": {"cores": 1}}, namespace="default")
    await client.update(DEFINITIONS, definition)
    v2 = Resource("test.anyvisor.io", "v2", "machines", namespaced=True, kind="Machine")
    assert (await client.get(v2, "old", "default"))["apiVersion"] == "test.anyvisor.io/v2"
    await client.create(v2, {"metadata": {"name": "new"}, "spec": {"cores": 2}}, namespace="default")
    assert (await client.get(MACHINES, "new", "default"))["apiVersion"] == "test.anyvisor.io/v1"
    _, listed = await call(transport, "GET", "/apis/test.anyvisor.io/v1/machines")
    assert [item["apiVersion"] for item in listed["items"]] == ["test.anyvisor.io/v1"] * 2
    async with asyncio.timeout(5):
        async for event in client.watch(DEFINITIONS):
            assert event
            current: Json = await client.get(DEFINITIONS, "machines.test.anyvisor.io")
            if current["status"]["storedVersions"] == ["v1", "v2"]:
                break

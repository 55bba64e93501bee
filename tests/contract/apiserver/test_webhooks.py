"""Admission webhooks over HTTPS."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, Forbidden
from anyvisor.kube.resources import CONFIG_MAPS, SERVICES, Resource
from tests.contract.apiserver.pki import Pki

Json = dict[str, Any]
Answer = Callable[[Json], Json]
MUTATING = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False,
    kind="MutatingWebhookConfiguration",
)  # fmt: skip
VALIDATING = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False,
    kind="ValidatingWebhookConfiguration",
)  # fmt: skip


class Backend:
    """An HTTPS server that answers reviews as told."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.answers: dict[str, Answer] = {}
        self.port = 0

    async def serve(self, request: web.BaseRequest) -> web.Response:
        review: Json = json.loads(await request.read())
        self.asked.append(review["request"])
        response = self.answers[request.path](review["request"])
        return web.json_response({**review, "response": {"uid": review["request"]["uid"], **response}})


@pytest.fixture
async def backend(pki: Pki) -> AsyncIterator[Backend]:
    made = Backend()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pki.server.cert, pki.server.key)
    runner = web.ServerRunner(web.Server(made.serve))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with ApiServer(ServerConfig(tmp_path / "s.db")) as server:
        yield Client(server.inprocess(Identity("admin", ("system:masters",))))


def hook(pki: Pki, backend: Backend, path: str, **fields: Any) -> Json:
    rules = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    return {
        "name": f"{path.strip('/')}.test.io",
        "clientConfig": {
            "url": f"https://localhost:{backend.port}{path}",
            "caBundle": base64.b64encode(pki.ca.cert.read_bytes()).decode(),
        },
        "rules": rules,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        **fields,
    }


def patch(*operations: Json) -> Json:
    raw = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": raw}


async def configure(client: Client, kind: Resource, *hooks: Json) -> None:
    await client.create(kind, {"metadata": {"name": "test"}, "webhooks": list(hooks)})


async def make(client: Client, name: str, labels: Json | None = None, *, dry_run: bool = False) -> Json:
    body: Json = {"metadata": {"name": name, "labels": labels or {}}, "data": {}}
    return await client.create(CONFIG_MAPS, body, namespace="default", dry_run=dry_run)


async def test_mutate_then_validate(client: Client, backend: Backend, pki: Pki):
    backend.answers["/m"] = lambda _asked: patch({"op": "add", "path": "/data", "value": {"a": "b"}})
    backend.answers["/v"] = lambda asked: {
        "allowed": asked["object"]["metadata"]["name"] != "bad",
        "status": {"message": "no bad names"},
        "warnings": ["mind the gap"],
    }
    await configure(client, MUTATING, hook(pki, backend, "/m"))
    await configure(client, VALIDATING, hook(pki, backend, "/v"))
    assert (await make(client, "good"))["data"] == {"a": "b"}
    assert backend.asked[1]["object"]["data"] == {"a": "b"}, "validated after mutation"
    assert backend.asked[1]["userInfo"]["username"] == "admin"
    with pytest.raises(Forbidden, match="denied the request: no bad names"):
        await make(client, "bad")


async def test_failure_policy_timeout_and_dry_run(client: Client, backend: Backend, pki: Pki):
    await configure(client, VALIDATING, hook(pki, backend, "/x", clientConfig={"url": "https://localhost:1/"}))
    with pytest.raises(ApiError, match=r'failed calling webhook "x\.test\.io"'):
        await make(client, "a")
    await client.delete(VALIDATING, "test")
    broken = {"url": "https://localhost:1/"}
    await configure(client, VALIDATING, hook(pki, backend, "/x", clientConfig=broken, failurePolicy="Ignore"))
    await make(client, "a")
    await client.delete(VALIDATING, "test")
    await configure(client, VALIDATING, hook(pki, backend, "/x", sideEffects="Some"))
    with pytest.raises(ApiError, match="does not support dry run"):
        await make(client, "b", dry_run=True)


async def test_selectors_choose_what_is_asked(client: Client, backend: Backend, pki: Pki):
    backend.answers["/v"] = lambda _asked: {"allowed": False, "status": {"code": 422, "message": "never"}}
    chosen = hook(pki, backend, "/v", objectSelector={"matchLabels": {"check": "yes"}})
    await configure(client, VALIDATING, chosen)
    await make(client, "a")
    with pytest.raises(ApiError, match="never") as caught:
        await make(client, "b", {"check": "yes"})
    assert caught.value.status == 422


async def test_match_conditions(client: Client, backend: Backend, pki: Pki):
    backend.answers["/v"] = lambda _asked: {"allowed": False}
    named = [
        {"name": "only-bad", "expression": "object.metadata.name.startsWith('bad') && request.operation == 'CREATE'"}
    ]
    await configure(client, VALIDATING, hook(pki, backend, "/v", matchConditions=named))
    await make(client, "good")
    with pytest.raises(Forbidden, match="denied the request without explanation"):
        await make(client, "bad")
    await client.delete(VALIDATING, "test")
    broken = [{"name": "x", "expression": "authorizer.check()"}]
    with pytest.raises(ApiError, match=r"undeclared reference|not available"):
        await configure(client, VALIDATING, hook(pki, backend, "/v", matchConditions=broken))


async def test_a_service_is_resolved_by_its_external_name(client: Client, backend: Backend, pki: Pki):
    service: Json = {"metadata": {"name": "hooks"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    await client.create(SERVICES, service, namespace="default")
    backend.answers["/s"] = lambda _asked: {"allowed": True}
    bundle = base64.b64encode(pki.ca.cert.read_bytes()).decode()
    reference = {"namespace": "default", "name": "hooks", "path": "/s", "port": backend.port}
    await configure(
        client, VALIDATING, hook(pki, backend, "/s", clientConfig={"service": reference, "caBundle": bundle})
    )
    with pytest.raises(ApiError, match="certificate"):
        await make(client, "a")
    await asyncio.sleep(0)

"""Who may do what: each component only its own work, nobody more than they have, tokens no longer than they live."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anyvisor.embedded import identities
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.rbac import Attributes
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.apiserver.status import StatusError
from tests.contract.apiserver.inside import ADMIN, DEFAULT, Json, call

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AGENT = Identity("system:anyvisor:agent:n1", ("system:anyvisor:agents",)).with_authenticated()
NODE = Identity("system:node:n1", ("system:nodes",)).with_authenticated()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(ServerConfig(tmp_path / "s.db")) as running:
        yield running


def may(server: ApiServer, who: Identity, question: str) -> bool:
    """`verb group/resource[/subresource]`, asked of namespace default."""
    verb, _, what = question.partition(" ")
    group, resource, *rest = what.split("/")
    try:
        server.handler.authorize(who, Attributes(verb, group, resource, "/".join(rest), "default", "x"))
    except StatusError:
        return False
    return True


COMPONENTS: dict[str, tuple[Identity, list[str], list[str]]] = {
    "controller": (
        identities.CONTROLLER,
        ["create /pods", "patch kubevirt.io/virtualmachineinstances/status", "create /pods/eviction"],
        ["create /pods/binding", "patch /nodes/status", "create /serviceaccounts/token", "create /pods/exec"],
    ),
    "gateway": (
        identities.GATEWAY,
        ["get kubevirt.io/virtualmachineinstances", "create authorization.k8s.io/subjectaccessreviews"],
        ["get /secrets", "create /pods", "delete /pods", "delete kubevirt.io/virtualmachines", "create /pods/binding"],
    ),
    "scheduler": (
        identities.SCHEDULER,
        ["create /pods/binding", "list /nodes", "patch /persistentvolumeclaims"],
        ["create /pods", "get /secrets", "get /configmaps", "patch kubevirt.io/virtualmachines", "patch /nodes"],
    ),
    "endpoint slices": (
        identities.ENDPOINT_SLICES,
        ["create discovery.k8s.io/endpointslices"],
        ["get /secrets", "get /pods", "create /services"],
    ),
    "agent": (
        AGENT,
        ["patch kubevirt.io/virtualmachineinstances/status", "patch anyvisor.io/hypervisornodes/status"],
        ["get /secrets", "list /secrets", "get /configmaps", "create /pods", "delete /pods", "create /pods/binding",
         "delete kubevirt.io/virtualmachineinstances", "patch anyvisor.io/hypervisorclasses"],
    ),
    "pod runner": (
        NODE,
        ["patch /pods/status", "create /serviceaccounts/token"],
        ["list /secrets", "create /pods", "get kubevirt.io/virtualmachines", "create /pods/binding"],
    ),
}  # fmt: skip
FOR_NO_COMPONENT = [
    "create rbac.authorization.k8s.io/clusterrolebindings",
    "escalate rbac.authorization.k8s.io/clusterroles",
    "impersonate /users",
    "create apiextensions.k8s.io/customresourcedefinitions",
    "create admissionregistration.k8s.io/mutatingwebhookconfigurations",
    "delete /namespaces",
    "* /*",
]


@pytest.mark.parametrize("name", COMPONENTS)
async def test_each_component_has_only_its_own_rights(server: ApiServer, name: str):
    who, its_own, others = COMPONENTS[name]
    assert [question for question in its_own if not may(server, who, question)] == []
    assert [question for question in [*others, *FOR_NO_COMPONENT] if may(server, who, question)] == []


async def grant(server: ApiServer, user: str, *rules: Json) -> None:
    admin = server.inprocess(ADMIN)
    role = {"metadata": {"name": user}, "rules": list(rules)}
    assert (await call(admin, "POST", f"{RBAC}/clusterroles", role))[0] == 201
    binding: Json = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    assert (await call(admin, "POST", f"{RBAC}/clusterrolebindings", binding))[0] == 201


def rbac_rule(*verbs: str, names: list[str] | None = None) -> Json:
    made: Json = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": list(verbs)}
    return {**made, "resourceNames": names} if names else made


def binding_of(role: str, subject: str) -> Json:
    return {
        "metadata": {"name": f"{role}-{subject}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": subject}],
    }


async def test_escalate_and_bind_are_rights_of_their_own(server: ApiServer):
    secrets: Json = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    await grant(server, "writer", rbac_rule("create", "update"))
    await grant(server, "escalator", rbac_rule("create", "escalate"))
    await grant(server, "binder", rbac_rule("create"), rbac_rule("bind", names=["view"]))
    writer, escalator, binder = (
        server.inprocess(Identity(name).with_authenticated()) for name in ("writer", "escalator", "binder")
    )
    roles, bindings = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
    status, answer = await call(writer, "POST", roles, {"metadata": {"name": "r1"}, "rules": [secrets]})
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert "attempting to grant RBAC permissions not currently held" in answer["message"]
    assert (await call(escalator, "POST", roles, {"metadata": {"name": "r1"}, "rules": [secrets]}))[0] == 201
    assert (await call(writer, "POST", bindings, binding_of("view", "writer")))[0] == 403
    assert (await call(binder, "POST", bindings, binding_of("view", "binder")))[0] == 201
    assert (await call(binder, "POST", bindings, binding_of("cluster-admin", "binder")))[0] == 403
    status, answer = await call(server.inprocess(ADMIN), "GET", f"{roles}/escalator")
    answer["rules"].append(secrets)
    assert (await call(writer, "PUT", f"{roles}/escalator", answer))[0] == 403, "nor by a change"


async def test_impersonation_needs_the_right_for_each_part(server: ApiServer):
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["sue"]}
    await grant(server, "actor", rule)
    actor, admin = server.inprocess(Identity("actor").with_authenticated()), server.inprocess(ADMIN)
    whoami, body = "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"}

    async def as_(transport: object, **headers: str) -> tuple[int, Json]:
        return await call(transport, "POST", whoami, body, **headers)  # pyright: ignore[reportArgumentType]

    status, answer = await as_(actor, impersonate_user="sue")
    assert (status, answer["status"]["userInfo"]["username"]) == (201, "sue")
    for more in ({"impersonate_group": "system:masters"}, {"impersonate_uid": "7"}, {"impersonate_extra_a": "b"}):
        status, answer = await as_(actor, impersonate_user="sue", **more)
        assert status == 403, more
        assert "impersonate" in answer["message"]
    assert (await as_(actor, impersonate_user="kubernetes-admin"))[0] == 403
    status, answer = await as_(admin, impersonate_user="sue", impersonate_group="ops", impersonate_uid="7")
    assert answer["status"]["userInfo"]["groups"] == ["ops", "system:authenticated"]
    assert answer["status"]["userInfo"]["uid"] == "7"
    assert (await as_(admin, impersonate_group="ops"))[0] == 400, "a group without a user"


async def test_a_bound_token_ends_with_its_pod(server: ApiServer):
    admin = server.inprocess(ADMIN)
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "bot", "nodeName": "n1", "containers": [{"name": "c", "image": "x"}]},
    }
    assert (await call(admin, "POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "bot"}}))[0] == 201
    assert (await call(admin, "POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}))[0] == 201
    _, made = await call(admin, "POST", f"{DEFAULT}/pods", pod)
    ask = f"{DEFAULT}/serviceaccounts/bot/token"
    bound: Json = {"kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
    _, answer = await call(admin, "POST", ask, {"spec": {"boundObjectRef": bound, "expirationSeconds": 900}})
    token = answer["status"]["token"]
    found = server.lookup_token(token)
    assert found is not None
    assert found.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert found.extra["authentication.kubernetes.io/node-name"] == ("n1",)
    assert (await call(admin, "POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "other"}}))[0] == 201
    of_another = f"{DEFAULT}/serviceaccounts/other/token"
    status, refused = await call(admin, "POST", of_another, {"spec": {"boundObjectRef": bound}})
    assert (status, "different serviceaccount name" in refused["message"]) == (400, True)
    assert server.lookup_token(token[:-4] + "AAAA") is None
    assert (await call(admin, "POST", ask, {"spec": {"boundObjectRef": {**bound, "uid": "other"}}}))[0] == 409
    _, other = await call(admin, "POST", ask, {"spec": {"audiences": ["elsewhere"]}})
    assert server.lookup_token(other["status"]["token"]) is None, "it is meant for others"
    assert (await call(admin, "POST", ask, {"spec": {"expirationSeconds": 60}}))[0] == 422
    await call(admin, "DELETE", f"{DEFAULT}/pods/p?gracePeriodSeconds=0")
    assert server.lookup_token(token) is None


@pytest.mark.parametrize(
    ("kind", "place"), [("Secret", f"{DEFAULT}/secrets"), ("Node", "/api/v1/nodes")], ids=["secret", "node"]
)
async def test_a_token_may_share_the_life_of_a_secret_or_a_node(server: ApiServer, kind: str, place: str):
    admin = server.inprocess(ADMIN)
    assert (await call(admin, "POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "bot"}}))[0] == 201
    ask = f"{DEFAULT}/serviceaccounts/bot/token"
    wanted: Json = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": "a"}}}
    assert (await call(admin, "POST", ask, wanted))[0] == 404
    assert (await call(admin, "POST", place, {"metadata": {"name": "a"}}))[0] == 201
    status, answer = await call(admin, "POST", ask, wanted)
    token = answer["status"]["token"]
    found = server.lookup_token(token)
    assert (status, found is not None) == (201, True)
    assert found is not None
    assert found.extra.get("authentication.kubernetes.io/node-name") == (("a",) if kind == "Node" else None)
    other: Json = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}}}
    status, refused = await call(admin, "POST", ask, other)
    assert (status, refused["message"]) == (400, "cannot bind token to object of type v1, Kind=ConfigMap")
    await call(admin, "DELETE", f"{place}/a")
    assert server.lookup_token(token) is None
    assert (await call(admin, "POST", place, {"metadata": {"name": "a"}}))[0] == 201
    assert server.lookup_token(token) is None, "it is another object of that name"


async def test_no_secret_is_logged_or_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    audited: list[Json] = []
    marker = "c2VjcmV0LW1hcmtlcg=="
    with caplog.at_level(logging.DEBUG):
        async with ApiServer(ServerConfig(tmp_path / "s.db", audit=audited.append)) as server:
            admin = server.inprocess(ADMIN)
            secrets = f"{DEFAULT}/secrets"
            body: Json = {"metadata": {"name": "s"}, "data": {"k": marker}}
            assert (await call(admin, "POST", secrets, body))[0] == 201
            await call(admin, "GET", f"{secrets}/s", authorization=f"Bearer {marker}")
            await call(admin, "PUT", f"{secrets}/s", {**body, "data": {"k": [marker]}})
            await call(admin, "POST", f"{DEFAULT}/serviceaccounts", {"metadata": {"name": "bot"}})
            _, answer = await call(admin, "POST", f"{DEFAULT}/serviceaccounts/bot/token", {"spec": {}})
            token = answer["status"]["token"]
            await asyncio.sleep(0)
    told = caplog.text + json.dumps(audited)
    assert [event["verb"] for event in audited].count("create") == 3
    assert marker not in told
    assert token not in told
    assert "secret-marker" not in told

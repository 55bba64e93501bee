"""Rules of access, tokens, and the paths and parameters of requests."""

from typing import Any

import pytest

from anyvisor.embedded.apiserver.discovery import version_order
from anyvisor.embedded.apiserver.params import Target, delete_options, parse_path, write_options
from anyvisor.embedded.apiserver.rbac import Attributes, covers, make_rule
from anyvisor.embedded.apiserver.status import StatusError
from anyvisor.embedded.apiserver.tokens import AUDIENCE, Bound, Tokens, identity_of

Json = dict[str, Any]


def rule(verbs: str, groups: str = "", resources: str = "pods", names: str = "", namespace: str = "") -> Json:
    raw: Json = {"verbs": verbs.split(","), "apiGroups": groups.split(","), "resources": resources.split(",")}
    if names:
        raw["resourceNames"] = names.split(",")
    return {"rule": raw, "namespace": namespace}


def asked(verb: str, resource: str = "pods", *, group: str = "", namespace: str = "n", name: str = "") -> Attributes:
    plural, _, below = resource.partition("/")
    return Attributes(verb, group, plural, below, namespace, name)


@pytest.mark.parametrize(
    ("granted", "question", "allowed"),
    [
        (rule("get"), asked("get"), True),
        (rule("get"), asked("list"), False),
        (rule("*"), asked("list"), True),
        (rule("get", "apps"), asked("get"), False),
        (rule("get", "*", "*"), asked("get", group="x.io", resource="things"), True),
        (rule("get"), asked("get", "pods/log"), False),
        (rule("get", resources="pods/log"), asked("get", "pods/log"), True),
        (rule("get", resources="*/log"), asked("get", "pods/log"), True),
        (rule("get", resources="*"), asked("get", "pods/log"), True),
        (rule("get", names="a"), asked("get", name="a"), True),
        (rule("get", names="a"), asked("get", name="b"), False),
        (rule("get", namespace="n"), asked("get"), True),
        (rule("get", namespace="n"), asked("get", namespace="m"), False),
        (rule("get", namespace="n"), asked("get", namespace=""), False),
    ],
)
def test_rules(granted: Json, question: Attributes, allowed: bool):
    assert make_rule(granted["namespace"], granted["rule"]).allows(question) is allowed


def test_rules_of_paths():
    paths = make_rule("", {"verbs": ["get"], "nonResourceURLs": ["/api/*", "/version"]})
    assert paths.allows(Attributes("get", path="/api/v1"))
    assert paths.allows(Attributes("get", path="/version"))
    assert not paths.allows(Attributes("get", path="/versions"))
    assert not paths.allows(Attributes("post", path="/version"))


@pytest.mark.parametrize(
    ("have", "wanted", "covered"),
    [
        ([rule("get,list")], rule("get"), True),
        ([rule("get"), rule("list")], rule("get,list"), True),
        ([rule("get")], rule("get,list"), False),
        ([rule("*", "*", "*")], rule("delete", "x", "y"), True),
        ([rule("get", names="a")], rule("get", names="a"), True),
        ([rule("get", names="a")], rule("get"), False),
        ([rule("get", namespace="n")], rule("get"), False),
        ([rule("get")], rule("get", namespace="n"), True),
    ],
)
def test_nobody_grants_more(have: list[Json], wanted: Json, covered: bool):
    mine = [make_rule(item["namespace"], item["rule"]) for item in have]
    assert covers(mine, make_rule(wanted["namespace"], wanted["rule"])) is covered


def test_tokens_expire_and_cannot_be_forged():
    now = 1000.0
    tokens = Tokens(b"k" * 32, lambda: now)
    token, expires = tokens.issue("n", "bot", "u1", [AUDIENCE], 600, Bound("Pod", "p", "u2"), Bound("Node", "n1", "u3"))
    claims = tokens.check(token)
    assert claims is not None
    assert (claims.account, claims.bound, expires) == ("bot", Bound("Pod", "p", "u2"), 1600)
    assert claims.node == Bound("Node", "n1", "u3")
    identity = identity_of(claims)
    assert identity.user == "system:serviceaccount:n:bot"
    assert "system:serviceaccounts:n" in identity.groups
    assert identity.extra["authentication.kubernetes.io/node-name"] == ("n1",)
    head, payload, signature = token.split(".")
    for forged in (
        f"{head}.{payload}.{signature[:-2]}AA",
        f"{head}.{payload}A.{signature}",
        "a.b.c",
        "x",
        "..",
        token * 99,
    ):
        assert tokens.check(forged) is None
    assert Tokens(b"o" * 32, lambda: now).check(token) is None
    now = 1600.0
    assert tokens.check(token) is None


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/version", ("", "", "", "", "", "")),
        ("/api/v1", ("", "", "", "", "", "")),
        ("/apis/g/v1", ("", "", "", "", "", "")),
        ("/api/v1/nodes", ("", "v1", "", "nodes", "", "")),
        ("/api/v1/nodes/a/status", ("", "v1", "", "nodes", "a", "status")),
        ("/api/v1/namespaces", ("", "v1", "", "namespaces", "", "")),
        ("/api/v1/namespaces/n", ("", "v1", "", "namespaces", "n", "")),
        ("/api/v1/namespaces/n/status", ("", "v1", "", "namespaces", "n", "status")),
        ("/api/v1/namespaces/n/finalize", ("", "v1", "", "namespaces", "n", "finalize")),
        ("/api/v1/namespaces/n/pods", ("", "v1", "n", "pods", "", "")),
        ("/api/v1/namespaces/n/pods/p/log", ("", "v1", "n", "pods", "p", "log")),
        ("/apis/g.io/v1/namespaces/n/vms/a/b/c", ("g.io", "v1", "n", "vms", "a", "b/c")),
        ("/apis/g.io/v1/vms/a%2Fb", ("g.io", "v1", "", "vms", "a/b", "")),
    ],
)
def test_paths(path: str, target: tuple[str, ...]):
    assert parse_path(path) == Target(path, *target)


def test_options_are_checked():
    assert write_options({}, "kubectl/v1.37 (linux)", "PatchOptions").field_manager == "kubectl"
    for query in ({"fieldValidation": "Maybe"}, {"fieldManager": "x" * 200}, {"dryRun": "Some"}):
        with pytest.raises(StatusError):
            write_options(query, "", "PatchOptions")
    options = delete_options({}, {"orphanDependents": True, "gracePeriodSeconds": 5, "preconditions": {"uid": "u"}})
    assert (options.propagation, options.grace, options.uid) == ("Orphan", 5, "u")
    for body in ({"propagationPolicy": "Sideways"}, {"gracePeriodSeconds": "x"}):
        with pytest.raises(StatusError):
            delete_options({}, body)


def test_preferred_versions_come_first():
    versions = ["v1alpha1", "v2beta1", "foo", "v1", "v2", "v1beta2", "v10"]
    assert sorted(versions, key=version_order) == ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "foo"]

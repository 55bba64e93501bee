"""The same random requests to our API server and to the official one: the answers must be the same.

What is meant to differ is left out by `answers.Normal` and listed in docs/kubernetes-differences.md.
"""

import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import programs
from tests.cluster.differential.answers import Normal, Server, differences
from tests.cluster.differential.script import GROUP, RECORDED, STEPS, Script, Step, definition, recording
from tests.cluster.kit.control_plane import control_plane
from tests.contract.apiserver.conftest import launch
from tests.contract.apiserver.pki import make_pki

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def theirs() -> Iterator[Server]:
    with control_plane(programs("apiserver")) as plane:
        server = Server(plane.admin)
        yield server
        server.close()


@pytest.fixture(scope="module")
def collected(ours: Server) -> Iterator[tuple[Server, Server]]:
    """Ours, and an official one with its garbage collector."""
    with control_plane(programs("apiserver", "controllers"), controllers=True) as plane:
        server = Server(plane.admin)
        yield ours, server
        server.close()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("ours"), make_pki(tmp_path_factory.mktemp("pki")))
    server = Server(Path(running.kubectl().kubeconfig))
    yield server
    server.close()
    running.process.terminate()
    assert running.process.wait(10) == 0


@pytest.fixture(scope="module")
def both(ours: Server, theirs: Server) -> tuple[Server, Server]:
    """Both servers, with the kind that the scripts use."""
    for server in (ours, theirs):
        assert server.send(Step("POST", DEFINITIONS, {}, definition())).status == 201
        wait_until_served(server)
    return ours, theirs


def wait_until_served(server: Server) -> None:
    deadline = time.monotonic() + 30
    while server.send(Step("GET", f"/apis/{GROUP}/v1/machines")).status != 200:
        assert time.monotonic() < deadline, "the new kind is not served"
        time.sleep(0.1)


@pytest.mark.parametrize("seed", range(8))
def test_the_same_requests_get_the_same_answers(both: tuple[Server, Server], seed: int) -> None:
    namespace = f"seed-{seed}"
    for server in both:
        assert server.send(Step("POST", "/api/v1/namespaces", {}, {"metadata": {"name": namespace}})).status == 201
    normal = Normal()
    recorded: list[object] = []
    for number, step in enumerate(Script(seed, namespace).steps(STEPS)):
        mine, reference = (normal.answer(server.send(step)) for server in both)
        recorded.append(reference)
        found = differences(mine, reference)
        assert not found, f"step {number}: {step}\n" + "\n".join(found)
    if os.environ.get("RECORD_ANSWERS") and seed in RECORDED:
        text = json.dumps(recorded, separators=(",", ":"), sort_keys=True).encode()
        recording(seed).write_bytes(gzip.compress(text, mtime=0))


@pytest.mark.parametrize("selector", ["", "app=a", "app notin (a)", "!app"])
def test_watches_tell_the_same(both: tuple[Server, Server], selector: str) -> None:
    namespace = f"watched-{abs(hash(selector))}"
    told: list[list[object]] = []
    for server in both:
        server.send(Step("POST", "/api/v1/namespaces", {}, {"metadata": {"name": namespace}}))
        path = f"/api/v1/namespaces/{namespace}/secrets"
        start: str = server.send(Step("GET", path)).body["metadata"]["resourceVersion"]
        for step in Script(3, namespace).steps(STEPS):
            if "/secrets" in step.path and step.method != "GET":
                server.send(step)
        query = {"resourceVersion": start, "labelSelector": selector}
        normal = Normal()
        told.append([normal.value(event) for event in server.watch(path, query)])
    assert not differences(told[0], told[1])
    assert told[0] or selector, "the script changes what is watched"


OWNED = 24
PATH = "/api/v1/namespaces/{}/configmaps"


@pytest.mark.parametrize("seed", range(6))
def test_deletions_of_owners_leave_the_same(collected: tuple[Server, Server], seed: int) -> None:
    """Objects own each other at random, some are deleted in the foreground, in the background, or leave orphans."""
    namespace = f"owned-{seed}"
    for server in collected:
        make_owned(server, namespace, Script(seed, namespace).owned(OWNED))
    for name, policy in Script(seed + 100, namespace).deletions(OWNED):
        for server in collected:
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
            assert server.send(Step("DELETE", f"{PATH.format(namespace)}/{name}", {}, options)).status in (200, 404)
        settle(collected, namespace, f"{policy} of {name}")


def make_owned(server: Server, namespace: str, objects: list[tuple[str, list[tuple[str, bool]]]]) -> None:
    server.send(Step("POST", "/api/v1/namespaces", {}, {"metadata": {"name": namespace}}))
    uids: dict[str, str] = {}
    for name, owners in objects:
        references = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uids[owner], "blockOwnerDeletion": block}
            for owner, block in owners
        ]
        body = {"metadata": {"name": name, "ownerReferences": references}}
        uids[name] = server.send(Step("POST", PATH.format(namespace), {}, body)).body["metadata"]["uid"]


def left(server: Server, namespace: str) -> dict[str, list[str]]:
    """What is there: names, each with its owners; what is being deleted has `!` as the last of them."""
    found: dict[str, list[str]] = {}
    for item in server.send(Step("GET", PATH.format(namespace))).body["items"]:
        metadata = item["metadata"]
        if metadata["name"] != "kube-root-ca.crt":
            owners = sorted(owner["name"] for owner in metadata.get("ownerReferences", ()))
            found[metadata["name"]] = owners + (["!"] if "deletionTimestamp" in metadata else [])
    return found


def settle(both: tuple[Server, Server], namespace: str, what: str) -> None:
    """Wait until both have the same and are at rest."""
    deadline = time.monotonic() + 60
    while True:
        ours, theirs = (left(server, namespace) for server in both)
        if ours == theirs and not any("!" in owners for owners in ours.values()):
            return
        assert time.monotonic() < deadline, f"after {what}: ours {ours}, theirs {theirs}"
        time.sleep(0.1)

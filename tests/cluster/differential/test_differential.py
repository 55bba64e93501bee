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

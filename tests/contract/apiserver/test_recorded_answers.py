"""The official API server's answers to random scripts of requests, recorded; ours must be the same.

`tests/cluster/differential` compares with a live one; with RECORD_ANSWERS=yes it also records.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.differential.answers import Normal, Server, differences
from tests.cluster.differential.script import GROUP, RECORDED, Script, Step, definition, recording
from tests.contract.apiserver.conftest import launch
from tests.contract.apiserver.pki import Pki


@pytest.fixture
def connection(tmp_path: Path, pki: Pki) -> Iterator[Server]:
    """A server of the test's own: a second try must not find the objects of the first."""
    running = launch(tmp_path, pki)
    made = Server(Path(running.kubectl().kubeconfig))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert made.send(Step("POST", path, {}, definition())).status == 201
    assert made.send(Step("GET", f"/apis/{GROUP}/v1/machines")).status == 200
    yield made
    made.close()
    running.process.terminate()
    assert running.process.wait(30) == 0


@pytest.mark.parametrize("seed", RECORDED)
def test_answers_are_those_of_the_official_server(connection: Server, seed: int) -> None:
    recorded = json.loads(gzip.decompress(recording(seed).read_bytes()))
    namespace = f"seed-{seed}"
    connection.send(Step("POST", "/api/v1/namespaces", {}, {"metadata": {"name": namespace}}))
    normal = Normal()
    for number, step in enumerate(Script(seed, namespace).steps(len(recorded))):
        found = differences(normal.answer(connection.send(step)), recorded[number])
        assert not found, f"step {number}: {step}\n" + "\n".join(found)

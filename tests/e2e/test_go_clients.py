"""Programs on Go's client-go and controller-runtime, against a whole instance."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Instance
from tests.e2e.gobuild import BUILD_SECONDS, SOURCES, built

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "cores": {"type": "integer", "minimum": 1, "maximum": 64},
                "replicas": {"type": "integer"},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}},
    },
}
VERSION: dict[str, Any] = {
    "name": "v1",
    "served": True,
    "storage": True,
    "subresources": {"status": {}},
    "schema": {"openAPIV3Schema": SCHEMA},
}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "machines.judge.anyvisor.io"},
    "spec": {
        "group": "judge.anyvisor.io",
        "scope": "Namespaced",
        "names": {"plural": "machines", "kind": "Machine", "shortNames": ["jmc"]},
        "versions": [VERSION],
    },
}

pytestmark = pytest.mark.timeout(BUILD_SECONDS + 120)


def go_tests(package: str) -> list[str]:
    """Return the names of a package's tests, each of which runs in a process of its own."""
    text = "".join(path.read_text() for path in sorted((SOURCES / package).glob("*_test.go")))
    return re.findall(r"^func (Test\w+)", text, re.MULTILINE)


@pytest.fixture(scope="module")
def judged(shared: Instance) -> Iterator[Instance]:
    shared.apply(DEFINITION)
    shared.kubectl("wait", "crd/machines.judge.anyvisor.io", "--for=condition=Established", "--timeout=10s")
    yield shared
    shared.kubectl("delete", "crd", "machines.judge.anyvisor.io")


@pytest.fixture(scope="module")
def clientgo() -> Path:
    return built("clientgo.test", "test", "-c", "./clientgo")


@pytest.fixture(scope="module")
def operator() -> Path:
    return built("operator.test", "test", "-c", "./operator")


def run(program: Path, instance: Instance, test: str) -> None:
    done = subprocess.run(
        [str(program), "-test.v", "-test.run", f"^{test}$", "-test.timeout", "100s"],
        env={**os.environ, "KUBECONFIG": str(instance.data_dir / "kubeconfig")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"--- PASS: {test}" in done.stdout, done.stdout


@pytest.mark.parametrize("test", go_tests("clientgo"))
def test_client_go(clientgo: Path, judged: Instance, test: str) -> None:
    run(clientgo, judged, test)


@pytest.mark.parametrize("test", go_tests("operator"))
def test_controller_runtime(operator: Path, judged: Instance, test: str) -> None:
    run(operator, judged, test)

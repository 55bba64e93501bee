"""What a start leaves out to be quick."""

import os
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.apiserver import compiled as schemas
from anyvisor.embedded.apiserver.builtin import built_in
from anyvisor.embedded.apiserver.compiled import compiled
from anyvisor.embedded.apiserver.schema import Node, compile_schema
from anyvisor.embedded.child import Child
from anyvisor.embedded.preload import no_authorities


def test_imports_load_no_authorities_and_what_comes_later_does(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_DIR", "/etc/ssl/certs")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with no_authorities():
        assert ssl.create_default_context().get_ca_certs() == []
    assert os.environ["SSL_CERT_DIR"] == "/etc/ssl/certs"
    assert "SSL_CERT_FILE" not in os.environ


def test_a_schema_is_made_when_it_is_needed(monkeypatch: pytest.MonkeyPatch):
    made: list[object] = []

    def counted(schema: dict[str, Any]) -> Node:
        made.append(schema)
        return compile_schema(schema)

    monkeypatch.setattr(schemas, "compile_schema", counted)
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec}}
    found = compiled(schema)
    assert compiled(dict(schema)) is found
    assert found.public()["properties"].keys() == {"spec", "apiVersion", "kind"}
    assert not made
    assert found.node().props["spec"].preserve
    assert found.check({"spec": {}})
    assert not found.check({"spec": 1})
    found.node()
    assert len(made) == 1
    assert all(callable(resource.schema_of) for resource in built_in())


def test_the_zygote_imports_what_its_components_share_and_nothing_of_one_alone():
    program = (
        "import sys\n"
        "from anyvisor.embedded import components\n"
        "from anyvisor.embedded.preload import preload\n"
        "preload()\n"
        "print(*sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(found.stdout.split())
    assert {"aiohttp", "grpclib.server", "anyvisor.kube.client", "anyvisor.hri.kit"} <= loaded
    alone = ("cryptography", "anyvisor.admission", "anyvisor.controller", "anyvisor.gateway", "anyvisor.agent.main")
    assert not [name for name in alone if name in loaded]
    assert "anyvisor.embedded.apiserver.server" not in loaded


def test_a_child_does_its_work_and_says_whether_it_did(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    child = Child((tmp_path / "done").touch)
    assert child.done()
    assert (tmp_path / "done").exists()

    def broken() -> None:
        raise ValueError("no disk")

    assert not Child(broken).done()
    assert "no disk" in capfd.readouterr().err

"""What a start leaves out to be quick."""

import os
import ssl
from typing import Any

import pytest

from anyvisor.embedded import supervisor
from anyvisor.embedded.apiserver import compiled as schemas
from anyvisor.embedded.apiserver.builtin import built_in
from anyvisor.embedded.apiserver.compiled import compiled
from anyvisor.embedded.apiserver.schema import Node, compile_schema


def test_imports_load_no_authorities_and_what_comes_later_does(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSL_CERT_DIR", "/etc/ssl/certs")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with supervisor._no_authorities():
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

"""Manifests: what is wrong is told at once; what ships is right."""

import json
from pathlib import Path
from typing import Any

import pytest

import anyvisor
from anyvisor.hri import manifests
from anyvisor.hri.manifests import ManifestFileError
from anyvisor.planning.manifest import MAX_BYTES, ManifestError, digest, json_schema, parse
from anyvisor.planning.registry import registry
from tests.unit.planning.builders import manifest

SRC = Path(anyvisor.__file__).parent
SHIPPED = sorted(SRC.rglob("manifest.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.parent.name)
def test_what_ships_is_right(path: Path):
    raw = manifests.read(path.read_text())
    assert parse(raw, registry()).driver.endswith(".anyvisor.io")
    assert manifests.digest(raw) == digest(raw)


def test_there_is_something_to_check():
    assert {path.parent.name for path in SHIPPED} >= {"fake", "qemu"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"apiVersion": "hri.anyvisor.io/v9"}, "apiVersion"),
        ({"surprise": 1}, "surprise"),
        ({"driver": "Not A Name"}, "DNS subdomain"),
        ({"hri": {"minMinor": 3, "maxMinor": 2}}, "minMinor"),
        ({"launchMode": "magic"}, "launchMode"),
        ({"architectures": []}, "architectures"),
        ({"accelerators": ["warp"]}, "'warp'"),
        ({"overhead": {"fixed": "much"}}, "overhead.fixed"),
        ({"overhead": {"fixed": "-1Mi"}}, "negative"),
        ({"overhead": {"fixed": "1Mi", "guestMemoryRatio": "x"}}, "guestMemoryRatio"),
        ({"identity": {"soul": []}}, "'soul'"),
        ({"identity": {"uuid": ["forever"]}}, "'forever'"),
        ({"parameters": {"type": "array"}}, "type: object"),
        ({"parameters": {"type": "object", "properties": {"a": {"type": "nonsense"}}}}, "JSON Schema"),
        ({"parameters": {"type": "object", "$ref": "http://example.org"}}, "$ref"),
    ],
)
def test_a_wrong_head_is_refused(change: dict[str, Any], problem: str):
    with pytest.raises(ManifestError, match="cannot be used") as caught:
        parse(manifest(**change), registry())
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("capability", "statement", "problem"),
    [
        ("disk.magic", {}, "no such capability"),
        ("device.rng", {"values": ["a"]}, "takes no values"),
        ("device.rng", {"max": 1}, "no min or max"),
        ("disk.cache", {}, "list what is supported"),
        ("nic.count", {"max": None}, "state max"),
        ("cpu.threads", {"min": 5, "max": 2}, "above"),
        ("device.rng", {"requires": ["device.magic"]}, "not in the registry"),
        ("device.rng", {"requires": ["device.tpm"]}, "does not state as yes"),
        ("device.rng", {"requires": ["boot.bios"], "conflicts": ["boot.bios"]}, "both requires and excludes"),
        ("device.rng", {"conflicts": ["device.rng"]}, "itself"),
        ("device.rng", {"arch": ["vax"]}, "'vax'"),
        ("nic.discontinued", {}, "retired"),
        ("device.rng", {"state": "maybe"}, "maybe"),
    ],
)
def test_a_wrong_statement_is_refused(capability: str, statement: dict[str, Any], problem: str):
    with pytest.raises(ManifestError) as caught:
        parse(manifest({capability: {k: v for k, v in statement.items() if v is not None}}), registry())
    assert problem in str(caught.value)


def test_all_problems_are_told_at_once():
    with pytest.raises(ManifestError) as caught:
        parse(manifest({"a.b": {}, "c.d": {}}, driver="X", architectures=[]), registry())
    assert len(caught.value.problems) >= 4


def test_a_vendors_own_capability_is_let_through():
    assert "x.example.org/warp" in parse(manifest({"x.example.org/warp": {}}), registry()).capabilities


@pytest.mark.parametrize("raw", [None, [], "text", 7, {}, {"apiVersion": "hri.anyvisor.io/v1"}])
def test_what_is_no_manifest(raw: Any):
    with pytest.raises(ManifestError):
        parse(raw, registry())


def test_a_huge_or_deep_manifest_is_refused():
    with pytest.raises(ManifestError, match="bytes"):
        parse(manifest(title="x" * MAX_BYTES), registry())
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ManifestError, match="deep"):
        parse(manifest(defaults={"a": deep}), registry())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x [1]\nb: *x\n", "alias"),
        ("a: 1\na: 2\n", "twice"),
        ("- 1\n", "mapping"),
        ("a: !!python/object:os.system x\n", "plain YAML"),
        ("a: [", "plain YAML"),
        ("x: " + "y" * 300_000, "characters"),
    ],
)
def test_a_hostile_file_is_refused(text: str, problem: str):
    with pytest.raises(ManifestFileError, match=problem):
        manifests.read(text)


def test_json_is_yaml_too():
    assert manifests.read(json.dumps(manifest())) == manifest()


def test_the_schema_for_editors_knows_the_fields():
    text = json.dumps(json_schema())
    assert all(name in text for name in ("launchMode", "guestMemoryRatio", "additionalProperties"))

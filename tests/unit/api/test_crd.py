"""The definitions say of every field what the table of the API says, and the committed files are fresh."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.api import crd
from anyvisor.api.definitions import definition
from anyvisor.api.kinds import KINDS, KUBEVIRT
from anyvisor.api.schema import root_schema
from anyvisor.api.wire import QUANTITY_PATTERN

from .table import TABLE

ROOT = Path(__file__).parents[3]
KIND_BY_NAME = {f"{kind.group}/{kind.name}": kind for kind in KINDS}
FACTS = {
    "crdEnum": "enum",
    "crdDefault": "default",
    "minimum": "minimum",
    "maximum": "maximum",
    "minItems": "minItems",
    "maxItems": "maxItems",
    "minLength": "minLength",
    "maxLength": "maxLength",
}
Node = dict[str, Any]


def _kind(name: str):
    group, _, kind = name.split("/")
    return KIND_BY_NAME[f"{group}/{kind}"]


def _resolve(schema: Node, path: str) -> tuple[Node, Node]:
    """The schema of a dotted path and of its parent."""
    parent = here = schema
    for step in path.split("."):
        parent = here
        here = here["properties"][step.rstrip("[]{}")]
        if step.endswith("[]"):
            here = here["items"]
        elif step.endswith("{}"):
            here = here["additionalProperties"]
    return here, parent


def _expected_type(row: Node) -> str | None:
    if row.get("k8s") in ("Quantity", "IntOrString") or row["type"] == ["string", "number"]:
        return None
    return "string" if row["type"] == ["string", "null"] else row["type"]


def _may_be_null(row: Node) -> bool:
    return bool(row.get("nullable")) or (row["type"] == ["string", "null"] and not row.get("required"))


def _check_list(row: Node, node: Node) -> None:
    kind = row.get("listType", "atomic")
    assert node["x-kubernetes-list-type"] == kind
    assert node.get("x-kubernetes-list-map-keys") == row.get("listMapKeys")
    if row["items"] in ("string", "integer"):
        assert node["items"]["type"] == row["items"]


@pytest.mark.parametrize("name", TABLE["kinds"])
def test_the_schema_says_what_the_table_says(name: str):
    schema = root_schema(_kind(name).model)
    for row in TABLE["kinds"][name]["fields"]:
        path = row["path"]
        if row.get("inSwaggerOnly") or path.startswith("metadata"):
            continue
        node, parent = _resolve(schema, path)
        assert node.get("type") == _expected_type(row), path
        assert (path.split(".")[-1] in parent.get("required", ())) == bool(row.get("required")), path
        assert node.get("nullable", False) == _may_be_null(row), path
        assert node.get("x-kubernetes-preserve-unknown-fields", False) == row.get("preserveUnknown", False), path
        for old, new in FACTS.items():
            assert node.get(new) == row.get(old), (path, new)
        rules = [rule["rule"] for rule in node.get("x-kubernetes-validations", [])]
        assert rules == row.get("cel", []), path
        if row.get("array"):
            _check_list(row, node)
        if row.get("mapType"):
            assert node["x-kubernetes-map-type"] == row["mapType"], path
        if row.get("k8s") == "Quantity":
            assert node["x-kubernetes-int-or-string"] is True
            assert node["pattern"] == row["pattern"] == QUANTITY_PATTERN


def _paths(schema: Node, prefix: str = "") -> Iterator[str]:
    for name, node in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        yield path
        yield from _paths(node, f"{path}.")
        yield from _paths(node.get("items", {}), f"{path}[].")
        yield from _paths(node.get("additionalProperties", {}), f"{path}{{}}.")


@pytest.mark.parametrize("name", TABLE["kinds"])
def test_the_schema_has_no_other_fields_than_the_table_and_ours(name: str):
    known = {row["path"] for row in TABLE["kinds"][name]["fields"]}
    more = [path for path in _paths(root_schema(_kind(name).model)) if path not in known]
    assert [path for path in more if ".hypervisor" not in path and not path.startswith("metadata")] == []


@pytest.mark.parametrize("name", TABLE["kinds"])
def test_names_scope_and_subresources_are_those_of_the_table(name: str):
    row = TABLE["kinds"][name]
    made = definition(_kind(name))
    spec, names = made["spec"], made["spec"]["names"]
    assert (spec["group"], names["kind"], names["plural"], names["singular"], spec["scope"]) == (
        row["group"],
        row["kind"],
        row["plural"],
        row["singular"],
        row["scope"],
    )
    assert names.get("shortNames", []) == row["shortNames"]
    assert names.get("categories", []) == row["categories"]
    assert {version["name"] for version in spec["versions"]} == {row["version"], *row["otherServedVersions"]}
    assert [version["name"] for version in spec["versions"] if version["storage"]] == [row["version"]]
    for version in spec["versions"]:
        subresources = version.get("subresources", {})
        assert ("status" in subresources, "scale" in subresources) == (
            row["statusSubresource"],
            row["scaleSubresource"],
        )


def _lists(schema: Node) -> Iterator[Node]:
    inner: list[Node] = [*schema.get("properties", {}).values()]
    inner += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for node in inner:
        if node.get("type") == "array":
            yield node
        yield from _lists(node)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_schema_is_structural(kind: Any):
    schema = root_schema(kind.model)
    for node in _lists(schema):
        items = node["items"]
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in items["required"], (key, items)
        if node["x-kubernetes-list-type"] == "set":
            assert items["type"] != "object" or items["x-kubernetes-map-type"] == "atomic"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.served], ids=lambda kind: kind.name)
def test_every_served_kind_is_described(kind: Any):
    assert "Undocumented." not in str(root_schema(kind.model))


def test_the_committed_files_are_fresh():
    wanted = crd.files(crd.generate(), ROOT)
    stale = [path.name for path, content in wanted.items() if crd.is_stale(path, content)]
    assert stale == [], "run `make generated`"
    assert set((ROOT / "deploy/crds").glob("*.yaml")) == {path for path in wanted if path.suffix == ".yaml"}


def test_the_package_holds_all_served_definitions():
    names = [each["metadata"]["name"] for each in crd.crds()]
    assert names == [kind.definition for kind in KINDS if kind.served]
    assert {kind.definition for kind in KUBEVIRT if kind.served} == {
        "virtualmachines.kubevirt.io",
        "virtualmachineinstances.kubevirt.io",
        "virtualmachineinstancemigrations.kubevirt.io",
        "virtualmachineinstancereplicasets.kubevirt.io",
        "kubevirts.kubevirt.io",
    }


def test_a_deprecated_version_says_what_to_use():
    spec = definition(KIND_BY_NAME["kubevirt.io/VirtualMachine"])["spec"]
    assert spec["versions"][1]["deprecationWarning"] == (
        "kubevirt.io/v1alpha3 VirtualMachine is deprecated; use kubevirt.io/v1"
    )

"""The API server takes every definition that the models make, and keeps every field of the objects."""

import copy
from typing import Any

import pytest

from anyvisor.api.definitions import definition
from anyvisor.api.kinds import KINDS, Kind
from anyvisor.embedded.apiserver import crd_rules, crds
from anyvisor.embedded.apiserver.schema import prune, set_defaults

from ..unit.api.table import TABLE, filled

TABLE_NAMES = {f"{row['group']}/{row['kind']}": name for name, row in TABLE["kinds"].items()}
# A field that the OpenAPI document of the original shows and its definitions leave out.
LEFT_OUT = {"status.conditions[0].lastProbeTime"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_definition_is_accepted(kind: Kind):
    assert crd_rules.check(definition(kind), None) == []


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if f"{kind.group}/{kind.name}" in TABLE_NAMES], ids=lambda kind: kind.name
)
def test_no_field_is_pruned_and_none_is_added(kind: Kind):
    row = TABLE["kinds"][TABLE_NAMES[f"{kind.group}/{kind.name}"]]
    for resource in crds.resources(definition(kind)):
        obj: dict[str, Any] = filled(row["fields"])
        kept = copy.deepcopy(obj)
        unknown: list[str] = []
        prune(resource.schema, kept, "", unknown)
        assert set(unknown) <= LEFT_OUT
        defaulted = copy.deepcopy(kept)
        set_defaults(resource.schema, defaulted)
        assert defaulted == kept

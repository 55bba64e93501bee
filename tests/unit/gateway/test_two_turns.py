"""What lets the second turn of admission be left out: the first one's word that the rules would say the same again."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import ADMITTERS
from anyvisor.admission.result import AdmissionRequest, User
from anyvisor.api.meta import name, namespace, object_at
from anyvisor.gateway.admission import prepare, review
from anyvisor.hri.packages import load
from anyvisor.planning.facts import NodeFacts

Json = dict[str, Any]
DATA = Path(__file__).parents[2] / "data" / "judges" / "admission_open.jsonl"
CASES: list[Json] = [case for case in map(json.loads, DATA.read_text().splitlines()) if case["kind"] in ADMITTERS]
DRIVERS = ("qemu", "cloud-hypervisor", "fake")
WITHOUT_GROWTH = "libvirt"
"""A driver whose machines' memory does not grow."""
MANIFESTS: dict[str, Json] = {driver: load(driver).manifest for driver in (*DRIVERS, WITHOUT_GROWTH)}


class World:
    """The recorded objects around a case, and one driver for its machines."""

    def __init__(self, driver: str, case: Json) -> None:
        manifest = MANIFESTS[driver]
        called = {"metadata": {"name": manifest["driver"]}, "spec": {"manifest": manifest}, "kind": "HypervisorDriver"}
        chosen = {"driver": manifest["driver"], "default": True}
        offered = {"metadata": {"name": "std"}, "spec": chosen, "kind": "HypervisorClass"}
        asked = object_at(case, "request")
        self._objects: list[Json] = [called, offered, *(asked.get("world") or ())]
        context = case["context"]
        self._config = ClusterConfig.of(
            context.get("configuration"), context.get("architecture") or "amd64", asked.get("kvAnnotations")
        )

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return next((one for one in self.list(kind, namespace) if one["metadata"]["name"] == name), None)

    def list(self, kind: str, namespace: str = "") -> list[Json]:
        of_kind = [one for one in self._objects if one["kind"] == kind]
        return [one for one in of_kind if not namespace or one["metadata"].get("namespace") == namespace]

    def config(self) -> ClusterConfig:
        return self._config

    def nodes(self) -> tuple[NodeFacts, ...]:
        return ()


def question(case: Json, world: World) -> AdmissionRequest:
    asked, obj = object_at(case, "request"), case["object"]
    return AdmissionRequest(
        operation=asked.get("operation", "CREATE"),
        kind=case["kind"],
        object=obj,
        new_uuid=lambda: "6a1c9f4e-8f2b-4c39-9a44-2f0b6c1d7e55",
        now="2026-06-01T00:00:00Z",
        namespace=asked.get("namespace") or namespace(obj),
        name=asked.get("name") or name(obj),
        old_object=asked.get("old"),
        user=User(asked.get("user", ""), (), asked.get("extra") or {}),
        dry_run=bool(asked.get("dryRun")),
        subresource=asked.get("subresource", ""),
        related=world,
    )


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_is_said_to_be_reviewed_is_allowed_by_a_review(driver: str):
    seen: Counter[tuple[bool, bool]] = Counter()
    for case in CASES:
        world = World(driver, case)
        asked = question(case, world)
        answer = prepare(asked, world)
        again = review(replace(asked, object=answer.object), world)
        assert again.allowed or not answer.reviewed, case["id"]
        seen[answer.reviewed, again.allowed] += 1
    assert seen[True, True] > 20
    assert seen[False, False] > 20


def test_a_default_that_its_driver_lacks_is_taken_out_and_needs_no_other_review():
    case = next(case for case in CASES if case["id"] == "vmi-create-ok-001")
    large = json.loads(json.dumps(case))
    large["object"]["spec"]["domain"]["memory"] = {"guest": "2Gi"}
    world = World(WITHOUT_GROWTH, large)
    asked = question(large, world)
    answer = prepare(asked, world)
    assert "spec.domain.memory.maxGuest" in [default.path for default in answer.defaults]
    assert "maxGuest" not in answer.object["spec"]["domain"]["memory"]
    assert answer.reviewed
    assert review(replace(asked, object=answer.object), world).object["spec"]["domain"]["memory"]["maxGuest"]

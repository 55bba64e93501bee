"""Plans are made once: what a key must hold apart, and what it need not."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from anyvisor.planning import memo as room
from anyvisor.planning.classes import installed
from anyvisor.planning.facts import DriverFacts, NodeFacts
from anyvisor.planning.judge import Policy
from anyvisor.planning.memo import Memo
from anyvisor.planning.planner import plan
from tests.unit.planning.builders import driver, hypervisor_class, manifest, small

DRIVER = driver()
NODES = (NodeFacts("node-1", {DRIVER.manifest.driver: DriverFacts(DRIVER.manifest.driver, accelerators=("kvm",))}),)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The specs that were really planned."""
    specs: list[Any] = []

    def counted(spec: Any, *rest: Any, **named: Any) -> Any:
        specs.append(spec)
        return plan(spec, *rest, **named)

    monkeypatch.setattr(room, "plan", counted)
    return specs


def machine(**firmware: Any) -> dict[str, Any]:
    return small(firmware=firmware)


def test_machines_that_differ_in_their_identity_alone_are_planned_once(made: list[Any]):
    memo = Memo()
    plans = [memo.plan(machine(uuid=str(uuid4()), serial=str(n)), hypervisor_class(), DRIVER) for n in range(5)]
    assert len(made) == 1
    assert all(one == plan(machine(uuid=str(uuid4()), serial="x"), hypervisor_class(), DRIVER) for one in plans)
    memo.plan(machine(uuid="", serial="x"), hypervisor_class(), DRIVER)
    memo.plan(machine(serial="x"), hypervisor_class(), DRIVER)
    assert len(made) == 3


@pytest.mark.parametrize(
    "other",
    [
        {"spec": small(cpu={"cores": 3})},
        {"hypervisor_class": hypervisor_class(parameters={"a": "b"})},
        {"driver": replace(DRIVER, digest="sha256:two")},
        {"nodes": NODES},
        {"policy": Policy(on_cluster=True)},
        {"defaulted": {"domain.cpu.cores": "default"}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_whatever_counts_for_a_plan_asks_for_another(made: list[Any], other: dict[str, Any]):
    asked: dict[str, Any] = {"spec": small(), "hypervisor_class": hypervisor_class(), "driver": DRIVER}
    memo = Memo()
    memo.plan(**asked)
    memo.plan(**asked | other)
    assert len(made) == 2
    memo.plan(**asked)
    memo.plan(**asked | other)
    assert len(made) == 2


def test_the_plans_that_were_asked_for_longest_ago_are_forgotten(made: list[Any]):
    memo = Memo(size=2)
    for cores in (1, 2, 1, 3, 1, 2):
        memo.plan(small(cpu={"cores": cores}), hypervisor_class(), DRIVER)
    assert [spec["domain"]["cpu"]["cores"] for spec in made] == [1, 2, 3, 2]


def test_the_facts_of_all_nodes_are_read_once(made: list[Any], monkeypatch: pytest.MonkeyPatch):
    read: list[Any] = []
    real = room.digest

    def counted(value: Any) -> bytes:
        read.append(value)
        return real(value)

    monkeypatch.setattr(room, "digest", counted)
    memo, many = Memo(), tuple(replace(NODES[0], name=f"node-{number}") for number in range(1000))
    for cores in (1, 2, 1, 2):
        memo.plan(small(cpu={"cores": cores}), hypervisor_class(), DRIVER, many)
    assert [value for value in read if value is many] == [many]
    assert len(made) == 2
    fewer = many[1:]
    memo.plan(small(cpu={"cores": 1}), hypervisor_class(), DRIVER, fewer)
    memo.plan(small(cpu={"cores": 1}), hypervisor_class(), DRIVER, list(fewer))
    assert len(made) == 3, "facts are known by what they say, however they come"


def test_the_image_of_the_installation_is_part_of_the_question(made: list[Any]):
    memo = Memo()
    raw = {"metadata": {"name": DRIVER.manifest.driver}, "spec": {"manifest": manifest()}}
    own = installed(raw)
    other = installed({**raw, "spec": {**raw["spec"], "image": "registry.test/launcher:2"}})
    assert own.digest == other.digest
    images = [memo.plan(machine(), hypervisor_class(), each).pod.image for each in (own, other)]
    assert images == ["example.org/test:1", "registry.test/launcher:2"]
    arm = {**machine(), "architecture": "arm64"}
    assert memo.plan(arm, hypervisor_class(), other).pod.image == "registry.test/launcher:2"

"""Which interfaces a running guest is to get or to lose."""

import json
from typing import Any

import pytest

from anyvisor.agent.network.attach import MachineNetwork
from anyvisor.agent.nic_changes import NETWORKS, REPORT, NicChanges, Step, steps
from anyvisor.agent.status import Problem
from anyvisor.api.names import secondary_interface
from anyvisor.hri.v1.machine_spec_pb2 import Nic

Json = dict[str, Any]


def vmi(**states: str) -> Json:
    """Further networks by name with the state of their interfaces, beside the pod network."""
    interfaces: list[Json] = [{"name": "default", "masquerade": {}}]
    interfaces += [{"name": name, "bridge": {}, "state": state} for name, state in states.items()]
    networks: list[Json] = [{"name": "default", "pod": {}}]
    networks += [{"name": name, "multus": {"networkName": "lan"}} for name in states]
    return {"spec": {"domain": {"devices": {"interfaces": interfaces}}, "networks": networks}}


def pod(wanted: str = "", reported: str = "") -> Json:
    def listed(names: str) -> str:
        return json.dumps([{"name": "lan", "interface": secondary_interface(name)} for name in names.split()])

    return {"metadata": {"annotations": {NETWORKS: listed(wanted), REPORT: listed(reported)}}}


@pytest.mark.parametrize(
    ("spec", "plugged", "its_pod", "expected"),
    [
        (vmi(a=""), {"default", "a"}, pod("a", "a"), []),
        (vmi(a=""), {"default"}, pod("a"), [Step("attach", "a")]),
        (vmi(a="up"), {"default"}, pod(""), []),
        (vmi(a="absent"), {"default", "a"}, pod("", "a"), [Step("detach", "a")]),
        (vmi(a="absent"), {"default"}, pod("", "a"), [Step("detach", "a")]),
        (vmi(a="absent"), {"default"}, pod(), []),
        (vmi(a="absent", b=""), {"default", "a"}, pod("b", "a"), [Step("detach", "a"), Step("attach", "b")]),
        (vmi(), set[str](), pod(), []),
    ],
    ids=["as it is", "new", "pod not there yet", "to go", "gone but for the pod", "gone", "swap", "pod network"],
)
def test_steps(spec: Json, plugged: set[str], its_pod: Json, expected: list[Step]) -> None:
    assert steps(spec, plugged, its_pod) == expected


@pytest.mark.parametrize("text", ["lan", "{}", '[{"interface": 3}]', "[1]"])
def test_an_annotation_in_another_form_asks_for_nothing(text: str) -> None:
    assert steps(vmi(a=""), {"default"}, {"metadata": {"annotations": {NETWORKS: text}}}) == []


def test_a_failed_change_is_told_once_and_waits() -> None:
    changes, step = NicChanges(), Step("attach", "a")
    assert changes.due([step]) == [step]
    assert changes.tried(step, Problem("R", "why"))
    assert changes.due([step]) == []
    assert not changes.tried(step, Problem("R", "why"))
    wait = changes.retries.wait()
    assert wait is not None
    assert 2 < wait <= 4
    assert changes.due([]) == []
    assert (changes.problem, changes.retries.wait()) == (None, None)


def test_interfaces_come_to_and_go_from_an_open_network() -> None:
    network = MachineNetwork([Nic(id="default")], {}, [{"name": "default"}], {"default": "tap0"})
    network.absorb(MachineNetwork([Nic(id="a")], {}, [{"name": "a"}], {"a": "tapx"}))
    assert [nic.id for nic in network.nics] == ["default", "a"]
    network.drop("default")
    assert ([nic.id for nic in network.nics], network.status, network.taps) == (["a"], [{"name": "a"}], {"a": "tapx"})

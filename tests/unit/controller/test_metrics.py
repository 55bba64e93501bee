"""Metrics of objects, and what is observed of a run's way through its phases."""

import json
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from anyvisor.controller.machine_metrics import GROUPS, render

Json = dict[str, Any]
META: Json = {"name": "web", "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"}


def vm(status: str, **spec: Any) -> Json:
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    return {"metadata": META, "spec": spec, "status": {"printableStatus": status, "conditions": [condition]}}


def samples(
    vms: list[Json], vmis: list[Json], pods: dict[str, str] | None = None
) -> list[tuple[str, dict[str, str], float]]:
    text = render([json.dumps(each).encode() for each in vms], [json.dumps(each).encode() for each in vmis], pods or {})
    return [
        (each.name, each.labels, each.value)
        for family in text_string_to_metric_families(text.decode())
        for each in family.samples
    ]


def test_a_vm_is_in_one_group_of_states() -> None:
    for status, group in (("Running", "running"), ("Stopped", "non_running"), ("ErrImagePull", "error")):
        found = samples([vm(status)], [])
        since = {name: value for name, _, value in found if name.endswith("last_transition_timestamp_seconds")}
        assert len(since) == len(GROUPS)
        assert [name for name, value in since.items() if value] == [
            f"kubevirt_vm_{group}_status_last_transition_timestamp_seconds"
        ]
        (info,) = [labels for name, labels, _ in found if name == "kubevirt_vm_info"]
        assert (info["status"], info["status_group"], info["os"]) == (status.lower(), group, "<none>")


def test_vms_are_counted_by_namespace_and_runs_by_phase() -> None:
    other = {**vm("Running"), "metadata": {**META, "namespace": "a"}}
    run = {"metadata": META, "status": {"phase": "Running", "nodeName": "n1", "activePods": {"u": "n1"}}}
    found = samples([vm("Running"), vm("Stopped"), other], [run, run], {"u": "virt-launcher-web"})
    counts = {labels["namespace"]: value for name, labels, value in found if name == "kubevirt_number_of_vms"}
    assert counts == {"a": 1, "ns": 2}
    (phases,) = [(labels, value) for name, labels, value in found if name == "kubevirt_vmi_phase_count"]
    assert (phases[0]["phase"], phases[0]["node"], phases[1]) == ("running", "n1", 2)
    info = next(labels for name, labels, _ in found if name == "kubevirt_vmi_info")
    assert (info["vmi_pod"], info["evictable"]) == ("virt-launcher-web", "false")


def test_who_cannot_be_moved_is_told_only_where_it_matters() -> None:
    movable = [{"type": "LiveMigratable", "status": "True"}]
    for strategy, conditions, expected in (("LiveMigrate", [], 1), ("LiveMigrate", movable, 0), ("None", [], 0)):
        run = {"metadata": META, "spec": {"evictionStrategy": strategy}, "status": {"conditions": conditions}}
        assert [value for name, _, value in samples([], [run]) if name == "kubevirt_vmi_non_evictable"] == [expected]


def test_an_object_of_a_shape_that_nobody_knows_costs_the_others_nothing() -> None:
    assert [name for name, _, _ in samples([{"metadata": 5}, vm("Running")], [])].count("kubevirt_vm_info") == 1

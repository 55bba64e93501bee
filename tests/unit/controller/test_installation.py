"""The KubeVirt object in force and its state."""

from datetime import UTC, datetime
from typing import Any

from anyvisor.controller.installation import configuration_of, in_force, reconcile_installation
from anyvisor.controller.outcome import Change

Json = dict[str, Any]
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def kubevirt(name: str, created: str = "2026-01-01T00:00:00Z", generation: int = 1, **metadata: Any) -> Json:
    found = {"name": name, "namespace": "kubevirt", "uid": name, "creationTimestamp": created, "generation": generation}
    return {"metadata": {**found, **metadata}, "spec": {"configuration": {"owner": name}}}


def after(installation: Json, *others: Json) -> Json:
    (write,) = reconcile_installation(installation, others, NOW).writes
    assert isinstance(write, Change)
    assert write.status
    return write.after


def conditions(obj: Json) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in obj["status"]["conditions"]}


OLD, NEW = kubevirt("old"), kubevirt("new", "2026-02-01T00:00:00Z")


def test_the_installation_serves_and_tells_which_generation_is_in_force() -> None:
    told = after(OLD)
    assert told["status"]["phase"] == "Deployed"
    assert told["status"]["observedGeneration"] == 1
    assert conditions(told)["Available"] == ("True", "AllComponentsReady")
    assert reconcile_installation(told, [], NOW).writes == ()
    changed = {**told, "metadata": {**told["metadata"], "generation": 2}}
    again = after(changed)
    assert again["status"]["observedGeneration"] == 2
    assert again["status"]["conditions"] == told["status"]["conditions"]


def test_a_second_one_is_told_that_it_does_not_count() -> None:
    told = after(NEW, OLD)
    assert conditions(told) == {"Synchronized": ("False", "ExistingDeployment")}
    assert "kubevirt/old" in told["status"]["conditions"][0]["message"]
    assert "Synchronized" not in conditions(after(told))


def test_the_oldest_that_stays_is_in_force() -> None:
    leaving = kubevirt("old", deletionTimestamp="2026-05-01T00:00:00Z")
    assert in_force([NEW, OLD]) is OLD
    assert in_force([NEW, leaving]) is NEW
    assert in_force([leaving]) is leaving
    assert in_force([]) is None


def test_without_an_installation_all_defaults_hold() -> None:
    assert configuration_of([]) == {}
    assert configuration_of([NEW, OLD]) == {"owner": "old"}

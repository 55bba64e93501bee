"""Writes are guarded against other writers, and what the server refuses is told."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from anyvisor.controller.outcome import Change, Create, Delete, Outcome, normal
from anyvisor.controller.writer import RefusedError, Writer
from anyvisor.kube.client import Client
from anyvisor.kube.errors import Conflict
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.resources import PODS, PVCS, VMS
from tests.contract.controller.lab import Lab, vm

Json = dict[str, Any]


@pytest.fixture
async def events(lab: Lab) -> AsyncIterator[EventRecorder]:
    async with EventRecorder(lab.client, "test") as recorder:
        yield recorder


def owned(kind: str, name: str, owner: Json, **spec: Any) -> Json:
    reference = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": name, "namespace": "default", "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def claim(name: str, owner: Json) -> Json:
    return owned(
        "PersistentVolumeClaim",
        name,
        owner,
        accessModes=["ReadWriteOnce"],
        resources={"requests": {"storage": "1Gi"}},
    )


async def test_a_change_of_an_object_that_changed_meanwhile_conflicts(lab: Lab, events: EventRecorder) -> None:
    before = await lab.client.create(VMS, vm(strategy="Halted"))
    await lab.client.patch(VMS, "a", "default", {"metadata": {"labels": {"other": "writer"}}})
    after = {**before, "metadata": {**before["metadata"], "labels": {"mine": "yes"}}}
    with pytest.raises(Conflict):
        await Writer(lab.client, events, VMS, before).carry_out(Outcome((Change(VMS, before, after),)))
    assert (await lab.client.get(VMS, "a", "default"))["metadata"]["labels"] == {"other": "writer"}


async def test_later_changes_stand_on_earlier_ones(lab: Lab, events: EventRecorder) -> None:
    before = await lab.client.create(VMS, vm(strategy="Halted"))
    labelled = {**before, "metadata": {**before["metadata"], "labels": {"mine": "yes"}}}
    told = {**before, "status": {"printableStatus": "Stopped"}}
    writes = (Change(VMS, before, labelled), Change(VMS, before, told, status=True))
    await Writer(lab.client, events, VMS, before).carry_out(Outcome(writes))
    found = await lab.client.get(VMS, "a", "default")
    assert found["metadata"]["labels"] == {"mine": "yes"}
    assert found["status"]["printableStatus"] == "Stopped"


async def test_a_pods_metadata_and_status_cost_one_write(lab: Lab, events: EventRecorder) -> None:
    subject = await lab.client.create(VMS, vm(strategy="Halted"))
    launcher = owned("Pod", "p", subject, containers=[{"name": "c", "image": "i"}])
    launcher["metadata"]["labels"] = {"kubevirt.io": "virt-launcher"}
    counted = Client(lab.counted)
    before = await counted.create(PODS, launcher)
    lab.counted.writes.clear()
    told = {**before, "status": {**before["status"], "message": "told"}}
    marked = {**told, "metadata": {**before["metadata"], "labels": {"mine": "yes"}}}
    writes = (Change(PODS, before, told, status=True), Change(PODS, told, marked))
    await Writer(counted, events, VMS, subject).carry_out(Outcome(writes))
    found = await lab.client.get(PODS, "p", "default")
    assert (found["metadata"]["labels"], found["status"]["message"]) == ({"mine": "yes"}, "told")
    assert lab.counted.writes == {("PATCH", "pods"): 1}


async def test_what_exists_already_is_ours_if_it_has_our_owner(lab: Lab, events: EventRecorder) -> None:
    subject = await lab.client.create(VMS, vm(strategy="Halted"))
    create = Create(PVCS, claim("disk", subject), normal("Made", "Made the claim."), "FailedCreate")
    for _ in range(2):
        await Writer(lab.client, events, VMS, subject).carry_out(Outcome((create,)))
    assert (await lab.told("a", "Made"))["message"] == "Made the claim."
    assert len((await lab.client.list(PVCS, "default"))["items"]) == 1


async def test_what_belongs_to_another_is_not_taken(lab: Lab, events: EventRecorder) -> None:
    other = await lab.client.create(VMS, vm("b", strategy="Halted"))
    subject = await lab.client.create(VMS, vm(strategy="Halted"))
    await lab.client.create(PVCS, claim("disk", other))
    create = Create(PVCS, claim("disk", subject), None, "FailedCreate")
    with pytest.raises(RefusedError, match="'disk' exists already and belongs to something else"):
        await Writer(lab.client, events, VMS, subject).carry_out(Outcome((create,)))
    await lab.told("a", "FailedCreate")


async def test_a_refused_creation_is_told_with_the_server_s_words(lab: Lab, events: EventRecorder) -> None:
    subject = await lab.client.create(VMS, vm(strategy="Halted"))
    create = Create(PODS, owned("Pod", "p", subject, containers=[]), None, "FailedCreate")
    with pytest.raises(RefusedError) as refused:
        await Writer(lab.client, events, VMS, subject).carry_out(Outcome((create,)))
    assert refused.value.problem.reason == "FailedCreate"
    assert "containers" in refused.value.problem.message


async def test_what_is_gone_counts_as_deleted_and_another_of_its_name_is_left_alone(
    lab: Lab, events: EventRecorder
) -> None:
    subject = await lab.client.create(VMS, vm(strategy="Halted"))
    made = await lab.client.create(PVCS, claim("disk", subject))
    stale = {**made, "metadata": {**made["metadata"], "uid": "00000000-0000-4000-8000-000000000000"}}
    missing = claim("none", subject)
    outcome = Outcome((Delete(PVCS, stale), Delete(PVCS, missing)))
    await Writer(lab.client, events, VMS, subject).carry_out(outcome)
    assert (await lab.client.get(PVCS, "disk", "default"))["metadata"]["uid"] == made["metadata"]["uid"]

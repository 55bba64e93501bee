"""The life of a VM, from its creation to its end, as the API shows it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from anyvisor.controller import nodes
from anyvisor.kube.client import Propagation
from anyvisor.kube.resources import (
    CLASSES,
    CLUSTER_INSTANCETYPES,
    CONTROLLER_REVISIONS,
    KUBEVIRTS,
    LEASES,
    NODES,
    PODS,
    PREFERENCES,
    VMIS,
    VMS,
)
from tests.contract.controller.lab import NODE, Json, Lab, phase, vm


def printed(wanted: str) -> Callable[[Json], bool]:
    return lambda obj: obj.get("status", {}).get("printableStatus") == wanted


def condition(obj: Json, kind: str) -> Json:
    found = [one for one in obj.get("status", {}).get("conditions", []) if one["type"] == kind]
    return found[0] if found else {}


async def stop(lab: Lab, name: str = "a") -> None:
    await lab.client.patch(VMS, name, "default", {"spec": {"runStrategy": "Halted"}})


async def test_a_vm_that_always_runs_comes_up_and_goes_when_deleted(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm())
        pod = await lab.started("a")
        running = await lab.see(VMS, "a", printed("Running"))
        assert (running["status"]["ready"], running["status"]["created"]) == (True, True)
        vmi = await lab.client.get(VMIS, "a", "default")
        assert vmi["status"]["nodeName"] == NODE
        assert vmi["status"]["activePods"] == {pod["metadata"]["uid"]: NODE}
        assert vmi["status"]["hypervisor"]["driver"] == "qemu.anyvisor.io"
        await lab.client.delete(VMS, "a", "default")
        await lab.play_end("a", pod)
        await lab.gone(VMIS, "a")
        await lab.gone(VMS, "a")
        await lab.told("a", "SuccessfulDelete")


async def test_an_instance_is_handed_over_in_one_write(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm())
        pod = await lab.pod_of("a")
        await lab.run_pod(pod)
        await lab.see(VMIS, "a", phase("Scheduled"))
        assert lab.counted.writes["PATCH", "virtualmachineinstances"] == 1
        assert lab.counted.writes["PATCH", "pods"] == 0
        bound = await lab.client.get(PODS, pod["metadata"]["name"], "default")
        assert bound["metadata"]["labels"]["kubevirt.io/nodeName"] == NODE, "given with the binding"


async def test_a_halted_vm_ends_its_instance_and_starts_again_with_a_new_pod(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm())
        first = await lab.started("a")
        await lab.see(VMS, "a", printed("Running"))
        await stop(lab)
        await lab.play_end("a", first)
        await lab.see(VMS, "a", lambda seen: printed("Stopped")(seen) and not seen["status"]["created"])
        await lab.client.patch(VMS, "a", "default", {"spec": {"runStrategy": "Always"}})
        second = await lab.started("a")
        await lab.see(VMS, "a", printed("Running"))
        assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_no_second_pod_while_the_first_still_ends(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm())
        first = await lab.started("a")
        await lab.see(VMS, "a", printed("Running"))
        await stop(lab)
        await lab.see(PODS, first["metadata"]["name"], lambda pod: "deletionTimestamp" in pod["metadata"])
        await lab.client.patch(VMS, "a", "default", {"spec": {"runStrategy": "Always"}})
        await lab.see(VMS, "a", lambda seen: seen["status"].get("observedGeneration") == seen["metadata"]["generation"])
        assert len((await lab.client.list(PODS, "default"))["items"]) == 1
        await lab.play_end("a", first)
        second = await lab.first(
            PODS, lambda pod: pod["metadata"]["name"] != first["metadata"]["name"] and "gone" not in pod
        )
        assert second["metadata"]["ownerReferences"][0]["name"] == "a"


async def test_a_guest_that_failed_is_started_again_after_a_while(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm(strategy="RerunOnFailure"))
        pod = await lab.pod_of("a")
        await lab.run_pod(pod)
        await lab.see(VMIS, "a", phase("Scheduled"))
        await lab.run_guest("a", "Failed")
        await lab.run_pod(pod, "Failed")
        failed = await lab.see(VMS, "a", printed("CrashLoopBackOff"))
        assert failed["status"]["startFailure"]["consecutiveFailCount"] == 1


async def test_a_refused_instance_says_why_and_starts_once_it_may(lab: Lab) -> None:
    await lab.node()
    found = await lab.client.get(CLASSES, "qemu")
    await lab.client.create(VMIS, instance("b", hypervisor="qemu"))
    await lab.client.delete(CLASSES, "qemu")
    async with lab.controllers():
        refused = await lab.see(VMIS, "b", lambda vmi: condition(vmi, "Synchronized").get("status") == "False")
        said = condition(refused, "Synchronized")
        assert "qemu" in said["message"]
        await lab.told("b", said["reason"])
        assert not (await lab.client.list(PODS, "default"))["items"]
        await lab.client.create(CLASSES, {**found, "metadata": {"name": "qemu"}})
        await lab.started("b")
        running = await lab.see(VMIS, "b", lambda vmi: condition(vmi, "Ready").get("status") == "True")
        assert not condition(running, "Synchronized")


async def test_a_vm_whose_instance_is_refused_says_why_and_starts_once_it_may(lab: Lab) -> None:
    await lab.node()
    found = await lab.client.get(CLASSES, "qemu")
    await lab.client.create(VMS, vm(hypervisor="qemu"))
    await lab.client.delete(CLASSES, "qemu")
    async with lab.controllers():
        refused = await lab.see(VMS, "a", lambda seen: condition(seen, "Failure").get("status") == "True")
        assert condition(refused, "Failure")["reason"] == "FailedCreate"
        assert "qemu" in condition(refused, "Failure")["message"]
        await lab.told("a", "FailedCreate")
        await lab.client.create(CLASSES, {**found, "metadata": {"name": "qemu"}})
        await lab.started("a")
        running = await lab.see(VMS, "a", printed("Running"))
        assert not condition(running, "Failure")


async def test_two_controllers_at_once_make_one_instance_and_one_pod(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers(), lab.controllers():
        await lab.client.create(VMS, vm())
        pod = await lab.started("a")
        await lab.see(VMS, "a", printed("Running"))
        assert [one["metadata"]["uid"] for one in (await lab.client.list(PODS, "default"))["items"]] == [
            pod["metadata"]["uid"]
        ]
        await lab.client.delete(VMS, "a", "default")
        await lab.play_end("a", pod)
        await lab.gone(VMS, "a")


@pytest.mark.parametrize("state", ["lost", "silent"])
async def test_deletion_ends_though_the_node_is_gone(lab: Lab, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "GONE_GRACE", timedelta())
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm())
        await lab.started("a")
        await lab.see(VMS, "a", printed("Running"))
        if state == "lost":
            await lab.client.delete(NODES, NODE)
        else:
            await lab.client.create(LEASES, lease(datetime.now(UTC) - timedelta(minutes=30)))
        await lab.client.delete(VMS, "a", "default")
        await lab.gone(VMIS, "a")
        await lab.gone(VMS, "a")
        assert not (await lab.client.list(PODS, "default"))["items"]


def lease(renewed: datetime) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NODE, "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": NODE,
            "leaseDurationSeconds": 40,
            "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


def instance(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default"},
        "spec": vm(**spec)["spec"]["template"]["spec"],
    }


async def test_a_lone_instance_is_planned_run_and_deleted(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMIS, instance("b"))
        pod = await lab.started("b")
        await lab.see(VMIS, "b", lambda vmi: condition(vmi, "Ready").get("status") == "True")
        await lab.client.delete(VMIS, "b", "default")
        await lab.play_end("b", pod)
        await lab.gone(VMIS, "b")
        await lab.told("b", "SuccessfulCreate")


async def test_the_installation_tells_which_configuration_is_in_force(lab: Lab) -> None:
    async with lab.controllers():
        gates = {"developerConfiguration": {"featureGates": ["ImageVolume"]}}
        changed = await lab.client.patch(KUBEVIRTS, "kubevirt", "kubevirt", {"spec": {"configuration": gates}})
        generation = changed["metadata"]["generation"]
        found = await lab.first(
            KUBEVIRTS,
            lambda seen: seen.get("status", {}).get("observedGeneration") == generation,
            namespace="kubevirt",
        )
        assert condition(found, "Available")["status"] == "True"


async def ask(lab: Lab, *requests: Json) -> None:
    await lab.client.patch(VMS, "a", "default", {"status": {"stateChangeRequests": [*requests]}}, subresource="status")


async def test_a_restart_that_was_asked_for_ends_in_another_instance(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm())
        first = await lab.started("a")
        await lab.see(VMS, "a", printed("Running"))
        old = (await lab.client.get(VMIS, "a", "default"))["metadata"]["uid"]
        await ask(lab, {"action": "Stop", "uid": old}, {"action": "Start"})
        await lab.play_end("a", first)
        new = await lab.see(VMIS, "a", lambda seen: "gone" not in seen and seen["metadata"]["uid"] != old)
        assert (
            new["spec"]["domain"]["firmware"]["uuid"]
            == (await lab.client.get(VMS, "a", "default"))["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"]
        )
        await lab.started("a")
        done = await lab.see(VMS, "a", lambda seen: printed("Running")(seen) and seen["status"]["ready"])
        assert not done["status"].get("stateChangeRequests")


async def test_a_manual_vm_follows_requests_only(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm(strategy="Manual"))
        await lab.see(VMS, "a", printed("Stopped"))
        assert not (await lab.client.list(VMIS, "default"))["items"]
        await ask(lab, {"action": "Start"})
        pod = await lab.started("a")
        await lab.see(VMS, "a", lambda seen: printed("Running")(seen) and not seen["status"].get("stateChangeRequests"))
        await lab.run_guest("a", "Succeeded")
        await lab.run_pod(pod, "Succeeded")
        ended = await lab.see(VMS, "a", printed("Stopped"))
        assert ended["status"]["created"] is True


@pytest.mark.parametrize(
    ("strategy", "guest", "again"),
    [
        ("Always", "Succeeded", True),
        ("Always", "Failed", True),
        ("RerunOnFailure", "Failed", True),
        ("RerunOnFailure", "Succeeded", False),
        ("Once", "Failed", False),
    ],
)
async def test_what_follows_the_end_of_a_guest(lab: Lab, strategy: str, guest: str, *, again: bool) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm(strategy=strategy))
        pod = await lab.started("a")
        await lab.see(VMS, "a", printed("Running"))
        old = (await lab.client.get(VMIS, "a", "default"))["metadata"]["uid"]
        await lab.run_guest("a", guest)
        await lab.run_pod(pod, "Succeeded" if guest == "Succeeded" else "Failed")
        if again:
            await lab.see(VMIS, "a", lambda seen: "gone" not in seen and seen["metadata"]["uid"] != old)
            await lab.started("a")
            await lab.see(VMS, "a", printed("Running"))
        else:
            await lab.see(VMS, "a", lambda seen: seen["status"]["printableStatus"] != "Running")
            assert len((await lab.client.list(PODS, "default"))["items"]) <= 1


async def test_an_orphaned_instance_runs_on_and_is_adopted_by_the_next_vm_of_its_name(lab: Lab) -> None:
    await lab.node()
    async with lab.controllers():
        await lab.client.create(VMS, vm())
        pod = await lab.started("a")
        await lab.see(VMS, "a", printed("Running"))
        await lab.client.delete(VMS, "a", "default", propagation=Propagation.ORPHAN)
        await lab.gone(VMS, "a")
        orphan = await lab.client.get(VMIS, "a", "default")
        assert "deletionTimestamp" not in orphan["metadata"]
        made = await lab.client.create(VMS, vm())
        await lab.see(VMS, "a", printed("Running"))
        adopted = await lab.client.get(VMIS, "a", "default")
        assert adopted["metadata"]["uid"] == orphan["metadata"]["uid"]
        assert [one["uid"] for one in adopted["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
        assert (await lab.client.list(PODS, "default"))["items"][0]["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_an_instance_type_and_a_preference_hold_as_they_were_when_first_used(lab: Lab) -> None:
    await lab.node()
    size: Json = {"metadata": {"name": "small"}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "256Mi"}}}
    wishes_kind = "VirtualMachinePreference"
    wishes: Json = {"metadata": {"name": "own"}, "spec": {"cpu": {"preferredCPUTopology": "cores"}}}
    wanted = vm("sized")
    wanted["spec"] |= {"instancetype": {"name": "small"}, "preference": {"name": "own", "kind": wishes_kind}}
    del wanted["spec"]["template"]["spec"]["domain"]["memory"]
    async with lab.controllers():
        await lab.client.create(VMS, wanted)
        await lab.see(VMS, "sized", lambda obj: "'small', which does not exist" in str(obj.get("status")))
        await lab.client.create(PREFERENCES, wishes, "default")
        made = await lab.client.create(CLUSTER_INSTANCETYPES, size)
        vmi = await lab.see(VMIS, "sized", lambda obj: "spec" in obj)
        domain = vmi["spec"]["domain"]
        assert (domain["cpu"]["cores"], domain["cpu"]["sockets"], domain["memory"]["guest"]) == (2, 1, "256Mi")
        assert vmi["metadata"]["annotations"]["kubevirt.io/cluster-instancetype-name"] == "small"
        assert vmi["metadata"]["annotations"]["kubevirt.io/preference-name"] == "own"
        stored = await lab.see(VMS, "sized", lambda obj: "instancetypeRef" in obj.get("status", {}))
        kept = f"sized-small-v1beta1-{made['metadata']['uid']}-1"
        assert stored["status"]["instancetypeRef"] == {"name": "small", "controllerRevisionRef": {"name": kept}}
        assert "cpu" not in stored["spec"]["template"]["spec"]["domain"]
        revision = await lab.client.get(CONTROLLER_REVISIONS, kept, "default")
        assert revision["data"]["spec"]["memory"] == {"guest": "256Mi"}

        pod = await lab.started("sized")
        await lab.client.delete(CLUSTER_INSTANCETYPES, "small")
        await lab.client.delete(VMIS, "sized", "default")
        await lab.play_end("sized", pod)
        again = await lab.see(
            VMIS,
            "sized",
            lambda obj: "spec" in obj and obj["metadata"]["uid"] != vmi["metadata"]["uid"],
        )
        assert again["spec"]["domain"]["memory"]["guest"] == "256Mi"

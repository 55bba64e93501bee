"""Client, informers, scheduler and gateway against the embedded API server, over HTTP with the rights of a user."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from anyvisor.api.meta import conditions
from anyvisor.embedded.scheduler.service import Scheduler
from anyvisor.kube import errors
from anyvisor.kube.client import Client
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject
from anyvisor.kube.resources import EVENTS, NAMESPACES, NODES, PODS, PVCS, PVS, VMIS, VMS
from tests.contract.gateway.lab import TEMPLATE, Lab

Json = dict[str, Any]
ROOT = "/apis/subresources.kubevirt.io/v1"
SPACE = f"{ROOT}/namespaces/default"


async def allow(lab: Lab, user: str, role: str) -> None:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{role}", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    await lab.admin.call("POST", path, body=binding)


async def test_stop_and_start_leave_requests_for_the_controller(lab: Lab) -> None:
    await lab.running("a")
    await lab.admin.call("PUT", f"{SPACE}/virtualmachines/a/stop")
    vm = await lab.admin.get(VMS, "a", "default")
    uid = (await lab.admin.get(VMIS, "a", "default"))["metadata"]["uid"]
    assert vm["status"]["stateChangeRequests"] == [{"action": "Stop", "uid": uid}]
    await lab.admin.patch(VMIS, "a", "default", {"status": {"phase": "Succeeded"}})
    await lab.admin.patch(VMS, "a", "default", {"status": {"stateChangeRequests": None}}, subresource="status")
    await lab.admin.call("PUT", f"{SPACE}/virtualmachines/a/start")
    vm = await lab.admin.get(VMS, "a", "default")
    assert [each["action"] for each in vm["status"]["stateChangeRequests"]] == ["Stop", "Start"]
    with pytest.raises(errors.ServerError, match="already underway"):
        await lab.admin.call("PUT", f"{SPACE}/virtualmachines/a/start")


async def test_a_dry_run_changes_nothing(lab: Lab) -> None:
    await lab.running("a")
    await lab.admin.call("PUT", f"{SPACE}/virtualmachines/a/stop", body={"dryRun": ["All"]})
    assert "stateChangeRequests" not in (await lab.admin.get(VMS, "a", "default"))["status"]


async def test_rights_count_by_subresource(lab: Lab) -> None:
    await lab.running("a")
    await allow(lab, "eve", "edit")
    for token, allowed in (("editor", True), ("nobody", False)):
        transport = lab.user(token)
        client = Client(transport)
        if allowed:
            await client.call("PUT", f"{SPACE}/virtualmachineinstances/a/pause")
        else:
            with pytest.raises(errors.Forbidden, match="virtualmachineinstances/pause"):
                await client.call("PUT", f"{SPACE}/virtualmachineinstances/a/pause")
        assert json.loads(await client.call("GET", f"{ROOT}/version"))["gitVersion"].startswith("v1.9")
        await transport.close()
    assert len([one for one in lab.asked if one.endswith("/pause")]) == 1


async def test_a_console_goes_from_the_client_to_the_agent(lab: Lab) -> None:
    await lab.running("a")
    await allow(lab, "eve", "edit")
    url = f"{lab.url}{SPACE}/virtualmachineinstances/a/console"
    async with aiohttp.ClientSession() as session:
        headers = {"authorization": "Bearer editor"}
        async with session.ws_connect(url, protocols=("plain.kubevirt.io",), headers=headers) as console:
            await console.send_bytes(b"hello")
            assert await console.receive_bytes() == b"HELLO"
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(url, headers={"authorization": "Bearer nobody"})
        assert caught.value.status == 403


async def test_a_refused_stream_says_why_where_a_websocket_client_can_read_it(lab: Lab) -> None:
    await lab.running("vm1")
    url = f"{lab.url}{SPACE}/virtualmachineinstances/vm1/usbredir"
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(url, headers={"authorization": "Bearer admin"})
    assert refused.value.status == 409
    assert refused.value.headers is not None
    assert "Not configured with USB Redirection" in refused.value.headers["x-anyvisor-message"]


async def test_a_user_with_edit_may_forward_ports(lab: Lab) -> None:
    await lab.running("a")
    await allow(lab, "eve", "edit")
    async with aiohttp.ClientSession() as session:
        url = f"{lab.url}{SPACE}/virtualmachines/a/portforward/22/tcp"
        async with session.ws_connect(url, headers={"authorization": "Bearer editor"}) as tunnel:
            await tunnel.send_bytes(b"ssh")
            assert await tunnel.receive_bytes() == b"SSH"
    assert lab.asked[-1].endswith("/streams/portforward?port=22&protocol=tcp")


async def test_discovery_offers_both_versions(lab: Lab) -> None:
    group = json.loads(await lab.admin.call("GET", "/apis/subresources.kubevirt.io"))
    assert [each["version"] for each in group["versions"]] == ["v1", "v1alpha3"]
    assert group["preferredVersion"]["version"] == "v1"
    listed = json.loads(await lab.admin.call("GET", ROOT))["resources"]
    assert "virtualmachines/start" in {each["name"] for each in listed}


async def test_a_machine_review_is_answered_and_not_stored(lab: Lab) -> None:
    transport = lab.user("nobody")
    path = "/apis/reviews.anyvisor.io/v1alpha1/namespaces/default/machinereviews"
    machine = {"kind": "VirtualMachine", "spec": {"template": TEMPLATE}}
    answer = json.loads(await Client(transport).call("POST", path, body={"spec": {"machine": machine}}))
    assert (answer["kind"], answer["status"]["class"], answer["status"]["verdict"]) == (
        "MachineReview",
        "qemu",
        "SATISFIED",
    )
    with pytest.raises(errors.ApiError):
        await Client(transport).call("GET", path)
    await transport.close()


async def test_a_move_is_answered_with_facts_of_the_machines_claims(lab: Lab) -> None:
    """The gateway reads the claim, and the volume that it is bound to, by its own rights."""
    rule = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["far"]}
    volume: Json = {
        "metadata": {"name": "pv-1"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}},
        },
    }
    await lab.admin.create(PVS, volume)
    claim: Json = {
        "metadata": {"name": "root"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": "pv-1",
        },
    }
    await lab.admin.create(PVCS, claim, "default")
    disks = {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
    spec = {
        "domain": {"memory": {"guest": "64Mi"}, "devices": disks},
        "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "root"}}],
    }
    machine = {"kind": "VirtualMachineInstance", "spec": spec, "status": {"nodeName": "near"}}
    path = "/apis/reviews.anyvisor.io/v1alpha1/namespaces/default/machinereviews"
    body = {"spec": {"machine": machine, "moveTo": {"node": "other"}}}
    move = json.loads(await lab.admin.call("POST", path, body=body))["status"]["move"]
    assert (move["class"], move["node"], move["how"]) == ("qemu", "other", "no")
    told = {finding["code"]: finding["message"] for finding in move["findings"] if finding["bars"] == "cold"}
    assert told["VOLUME_ELSEWHERE"] == "claim root is reached from far alone, not other"


async def test_what_a_volume_patch_lost_is_told_in_the_words_clients_try_again_on(lab: Lab) -> None:
    await lab.running("a")
    volume = {"persistentVolumeClaim": {"claimName": "c"}}
    body = {"name": "v", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": volume}
    await lab.admin.call("PUT", f"{SPACE}/virtualmachines/a/addvolume", body=body)
    spec = (await lab.admin.get(VMS, "a", "default"))["spec"]["template"]["spec"]
    assert spec["volumes"] == [{"name": "v", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}]


async def test_an_informer_follows_the_server_through_a_burst(lab: Lab) -> None:
    seen: dict[str, int] = {}
    done = asyncio.Event()

    def note(_old: CachedObject | None, new: CachedObject | None) -> None:
        if new is not None and new.meta.name.startswith("ns-"):
            seen[new.meta.name] = seen.get(new.meta.name, 0) + 1
            if len(seen) == 50:
                done.set()

    async with Informer(lab.admin, NAMESPACES) as namespaces:
        await namespaces.synced.wait()
        namespaces.on_change(note)
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(lab.admin.create(NAMESPACES, {"metadata": {"name": f"ns-{number}"}}))
        await asyncio.wait_for(done.wait(), 10)
        names = {obj.meta.name for obj in namespaces.values()}
        assert {f"ns-{number}" for number in range(50)} <= names
        assert namespaces.last_error is None


async def test_pages_and_server_side_apply(lab: Lab) -> None:
    for number in range(5):
        await lab.admin.apply(NAMESPACES, {"metadata": {"name": f"p-{number}", "labels": {"t": "p"}}})
    pages = [page async for page in lab.admin.list_pages(NAMESPACES, labels="t=p", page_size=2)]
    assert [len(page.items) for page in pages] == [2, 2, 1]
    await lab.admin.apply(NAMESPACES, {"metadata": {"name": "p-0", "labels": {"u": "q"}}}, field_manager="other")
    labels = (await lab.admin.get(NAMESPACES, "p-0"))["metadata"]["labels"]
    assert (labels["t"], labels["u"]) == ("p", "q")


async def test_the_scheduler_binds_through_the_server(lab: Lab) -> None:
    for name in ("n1", "n2"):
        await lab.admin.create(NODES, {"metadata": {"name": name}})
        status = {"allocatable": {"cpu": "2", "memory": "2Gi", "pods": "10"}}
        await lab.admin.patch(NODES, name, None, {"status": status}, subresource="status")
    async with EventRecorder(lab.admin, "scheduler") as events:
        task = asyncio.create_task(Scheduler(lab.admin, events).run())
        async with Informer(lab.admin, PODS) as pods, Informer(lab.admin, EVENTS) as recorded:
            waited = Waiter()
            pods.on_change(waited)
            recorded.on_change(waited)
            for name, memory in (("a", "1500Mi"), ("b", "1500Mi"), ("c", "1500Mi")):
                await lab.admin.create(PODS, pod(name, memory))
            await waited.until(lambda: all(node_of(pods, name) for name in "ab"))
            assert {node_of(pods, "a"), node_of(pods, "b")} == {"n1", "n2"}
            await waited.until(lambda: bool(condition_of(pods, "c")))
            condition = condition_of(pods, "c")
            assert (condition["reason"], condition["message"]) == (
                "Unschedulable",
                "0/2 nodes are available: 2 Insufficient memory.",
            )
            await lab.admin.delete(PODS, "a", "default", grace=0)
            await waited.until(lambda: bool(node_of(pods, "c")))
            await waited.until(lambda: {"Scheduled", "FailedScheduling"} <= {reason(one) for one in recorded.values()})
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Waiter:
    """Wakes whoever waits for a state of the caches."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def __call__(self, _old: CachedObject | None, _new: CachedObject | None) -> None:
        self._changed.set()

    async def until(self, predicate: Any) -> None:
        async with asyncio.timeout(10):
            while not predicate():
                self._changed.clear()
                await self._changed.wait()


def pod(name: str, memory: str) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"memory": memory}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": [container]}}


def node_of(pods: Informer, name: str) -> str:
    found = pods.get("default", name)
    return found.json()["spec"].get("nodeName", "") if found is not None else ""


def condition_of(pods: Informer, name: str) -> Json:
    found = pods.get("default", name)
    refused = [one for one in conditions(found.json() if found else {}) if one["status"] == "False"]
    return next((one for one in refused if one["type"] == "PodScheduled"), Json())


def reason(event: CachedObject) -> str:
    return event.json().get("reason", "")

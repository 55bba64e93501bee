"""The API server with admission and the planner's word plugged in, used by our own client in process."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.api.crd import crds
from anyvisor.embedded import bootstrap, identities
from anyvisor.embedded.admission import LauncherPodsOnly, VirtualizationRules
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.eviction import Evictions
from anyvisor.embedded.world import ServerWorld
from anyvisor.hri.packages import load
from anyvisor.kube.client import Client
from anyvisor.kube.errors import ApiError, Forbidden, Invalid
from anyvisor.kube.resources import CLASSES, DRIVERS, PODS, VMIS, VMS, Resource
from anyvisor.kube.transport import Request

ADMIN = Identity("admin", ("system:masters",)).with_authenticated()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    world = ServerWorld()
    evictions = Evictions(world)
    config = ServerConfig(
        database=tmp_path / "control" / "objects.sqlite",
        crds=crds(),
        objects=bootstrap.objects(),
        admission=[
            VirtualizationRules(world, "mutating"),
            VirtualizationRules(world, "validating"),
            LauncherPodsOnly(),
        ],
        evict=evictions.ask,
    )
    async with ApiServer(config) as made:
        world.server = made
        evictions.client = Client(made.inprocess(identities.CONTROLLER))
        await bootstrap.install(Client(made.inprocess(bootstrap.IDENTITY)), [load("qemu")])
        yield made


@pytest.fixture
def client(server: ApiServer) -> Client:
    return Client(server.inprocess(ADMIN))


def vm(**spec: Any) -> dict[str, Any]:
    domain = {"memory": {"guest": "64Mi"}, "devices": {}, **spec.pop("domain", {})}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain, **spec}}},
    }


async def refusal(client: Client, obj: dict[str, Any]) -> Invalid:
    with pytest.raises(Invalid) as caught:
        await client.create(VMS, obj)
    return caught.value


def fields(error: ApiError) -> list[str]:
    return [cause["field"] for cause in (error.details or {}).get("causes", [])]


async def test_a_plain_vm_is_accepted_with_defaults(client: Client) -> None:
    made = await client.create(VMS, vm())
    assert made["spec"]["template"]["spec"]["domain"]["firmware"]["uuid"]


async def test_an_unknown_class_names_the_known_ones(client: Client) -> None:
    error = await refusal(client, vm(hypervisor="nonesuch"))
    assert fields(error) == ["spec.template.spec.hypervisor"]
    assert "the classes are: qemu" in str(error)


async def test_auto_finds_a_class(client: Client) -> None:
    await client.create(VMS, vm(hypervisor="auto"))


async def test_what_no_driver_states_is_refused_at_its_field(client: Client) -> None:
    error = await refusal(client, vm(domain={"devices": {"gpus": [{"name": "g", "deviceName": "example.com/g"}]}}))
    assert any(field.startswith("spec.template.spec.domain.devices.gpus") for field in fields(error))


async def test_what_is_not_served_yet_says_so(client: Client) -> None:
    error = await refusal(client, vm(volumes=[{"name": "v", "memoryDump": {"claimName": "c", "hotpluggable": True}}]))
    assert "not served yet" in str(error)


async def test_an_update_that_leaves_the_machine_alone_is_never_refused_by_the_planner(client: Client) -> None:
    made = await client.create(VMS, vm())
    await client.delete(CLASSES, "qemu")
    patched = await client.patch(VMS, "a", "default", {"metadata": {"labels": {"x": "y"}}})
    assert patched["metadata"]["labels"] == {"x": "y"}
    assert made["metadata"]["uid"] == patched["metadata"]["uid"]


async def test_a_typed_client_that_drops_our_field_keeps_it(client: Client) -> None:
    made = await client.create(VMS, vm(hypervisor="qemu"))
    del made["spec"]["template"]["spec"]["hypervisor"]
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 5
    updated = await client.update(VMS, made)
    assert updated["spec"]["template"]["spec"]["hypervisor"] == "qemu"


async def test_a_driver_without_a_manifest_that_can_be_used_is_told(client: Client) -> None:
    driver = await client.get(DRIVERS, "qemu.anyvisor.io")
    driver["spec"]["manifest"]["capabilities"] = {"no.such.capability": {"state": True}}
    await client.update(DRIVERS, driver)
    error = await refusal(client, vm())
    assert "cannot be used" in str(error)


async def test_only_the_controller_makes_launcher_pods(server: ApiServer, client: Client) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {"kubevirt.io": "virt-launcher"}},
        "spec": {"containers": [{"name": "compute", "image": "x"}]},
    }
    with pytest.raises(Forbidden, match="launcher pods of VMs only"):
        await client.create(PODS, pod)
    made = await Client(server.inprocess(identities.CONTROLLER)).create(PODS, pod)
    assert made["metadata"]["uid"]


async def test_a_users_spec_of_a_running_machine_is_not_his_to_change(client: Client) -> None:
    machine: dict[str, Any] = vm()["spec"]["template"]["spec"]
    vmi = {**vm(), "kind": "VirtualMachineInstance", "spec": machine}
    made = await client.create(VMIS, vmi)
    assert "masquerade" in made["spec"]["domain"]["devices"]["interfaces"][0]
    made["spec"]["domain"]["memory"]["guest"] = "128Mi"
    with pytest.raises(ApiError, match="not changed directly"):
        await client.update(VMIS, made)


async def launched(server: ApiServer, strategy: str) -> None:
    """A VMI that runs on a node, with its launcher pod."""
    own = Client(server.inprocess(identities.CONTROLLER))
    machine: dict[str, Any] = {**vm()["spec"]["template"]["spec"], "evictionStrategy": strategy}
    vmi = {**vm(), "kind": "VirtualMachineInstance", "spec": machine}
    made = await own.create(VMIS, vmi)
    await own.patch(VMIS, "a", "default", {"status": {**made.get("status", {}), "nodeName": "node-1"}})
    labels, notes = {"kubevirt.io": "virt-launcher"}, {"kubevirt.io/domain": "a"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": labels, "annotations": notes},
        "spec": {"nodeName": "node-1", "containers": [{"name": "compute", "image": "x"}]},
    }
    await own.create(PODS, pod)


async def evict(server: ApiServer) -> int:
    body = b'{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "default"}}'
    path = "/api/v1/namespaces/default/pods/p/eviction"
    request = Request("POST", path, headers={"content-type": "application/json"}, body=body)
    return (await server.inprocess(ADMIN).send(request)).status


async def test_an_eviction_asks_for_an_evacuation(server: ApiServer, client: Client) -> None:
    await launched(server, "External")
    assert await evict(server) == 429
    vmi = await client.get(VMIS, "a", "default")
    assert vmi["status"]["evacuationNodeName"] == "node-1"
    assert await evict(server) == 429


async def test_a_machine_without_a_strategy_is_evicted(server: ApiServer) -> None:
    await launched(server, "None")
    assert await evict(server) == 201


async def test_quotas_hold_for_machines_and_for_what_their_pods_ask(server: ApiServer, client: Client) -> None:
    quotas = Resource("", "v1", "resourcequotas", namespaced=True, kind="ResourceQuota")
    hard = {
        "count/virtualmachines.kubevirt.io": "1",
        "count/virtualmachineinstances.kubevirt.io": "1",
        "requests.memory": "300Mi",
    }
    await client.create(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, namespace="default")
    await client.create(VMS, vm())
    second = vm()
    second["metadata"]["name"] = "b"
    with pytest.raises(Forbidden, match=r"exceeded quota: q, requested: count/virtualmachines\.kubevirt\.io=1, used: "):
        await client.create(VMS, second)
    await client.delete(VMS, "a", "default")
    await client.create(VMS, second)

    own = Client(server.inprocess(identities.CONTROLLER))
    machine = {**vm(), "kind": "VirtualMachineInstance", "spec": vm()["spec"]["template"]["spec"]}
    await own.create(VMIS, machine)
    with pytest.raises(Forbidden, match=r"count/virtualmachineinstances\.kubevirt\.io=1"):
        await own.create(VMIS, {**machine, "metadata": {"name": "b", "namespace": "default"}})

    def launcher(name: str) -> dict[str, Any]:
        asked = {"requests": {"memory": "200Mi"}}
        return {
            "metadata": {"name": name, "namespace": "default", "labels": {"kubevirt.io": "virt-launcher"}},
            "spec": {"containers": [{"name": "compute", "image": "x", "resources": asked}]},
        }

    await own.create(PODS, launcher("one"))
    with pytest.raises(Forbidden, match=r"exceeded quota: q, requested: requests\.memory=200Mi, used: "):
        await own.create(PODS, launcher("two"))

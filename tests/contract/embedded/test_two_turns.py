"""The rules are asked once where nothing comes between the turns of admission, and twice where something does."""

import copy
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from anyvisor.admission.dispatch import admit
from anyvisor.api.crd import crds
from anyvisor.embedded import bootstrap
from anyvisor.embedded.admission import VirtualizationRules
from anyvisor.embedded.apiserver.admission import ALLOWED, AdmissionRequest, AdmissionResult
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.world import ServerWorld
from anyvisor.gateway import admission
from anyvisor.hri.packages import load
from anyvisor.kube.client import Client
from anyvisor.kube.errors import Invalid
from anyvisor.kube.resources import CONFIG_MAPS, HYPERVISOR_NODES, VMIS, VMS

Json = dict[str, Any]
ADMIN = Identity("admin", ("system:masters",)).with_authenticated()


class Between:
    """A mutating plugin after the rules, as a webhook is one: changes the object, or the world, as told."""

    phase: Literal["mutating"] = "mutating"

    def __init__(self) -> None:
        self.change: Callable[[Json], object] | None = None
        self.client: Client | None = None

    async def admit(self, request: AdmissionRequest) -> AdmissionResult:
        if request.resource.kind not in ("VirtualMachine", "VirtualMachineInstance"):
            return ALLOWED
        if self.client is not None:
            note: Json = {"metadata": {"generateName": "note-", "namespace": "default"}}
            await self.client.create(CONFIG_MAPS, note)
        if self.change is None:
            return ALLOWED
        changed = copy.deepcopy(request.object or {})
        self.change(changed)
        return AdmissionResult(object=changed)


@pytest.fixture
def between() -> Between:
    return Between()


@pytest.fixture
def world() -> ServerWorld:
    return ServerWorld()


@pytest.fixture
async def client(tmp_path: Path, between: Between, world: ServerWorld) -> AsyncIterator[Client]:
    rules = [VirtualizationRules(world, "mutating"), between, VirtualizationRules(world, "validating")]
    config = ServerConfig(tmp_path / "s.sqlite", crds=crds(), objects=bootstrap.objects(), admission=rules)
    async with ApiServer(config) as made:
        world.server = made
        await bootstrap.install(Client(made.inprocess(bootstrap.IDENTITY)), [load("qemu")])
        yield Client(made.inprocess(ADMIN))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds that the rules were asked about."""
    kinds: list[str] = []
    real = admit

    def counted(request: Any, config: Any) -> Any:
        kinds.append(request.kind)
        return real(request, config)

    monkeypatch.setattr(admission, "admit", counted)
    return kinds


def machine(**domain: Any) -> Json:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"domain": {"memory": {"guest": "2Gi"}, "devices": {}, **domain}},
    }


def stopped() -> Json:
    spec = {"runStrategy": "Halted", "template": {"spec": machine()["spec"]}}
    return {**machine(), "kind": "VirtualMachine", "spec": spec}


def break_the_machine(obj: Json) -> None:
    spec = obj["spec"].get("template", obj)["spec"]
    spec["domain"]["devices"]["disks"] = [{"name": "nowhere", "disk": {"bus": "virtio"}}]


@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_object_that_nobody_changed_is_judged_once(client: Client, asked: list[str], dry_run: bool):
    await client.create(VMIS, machine(), dry_run=dry_run)
    await client.create(VMS, stopped(), dry_run=dry_run)
    assert asked == ["VirtualMachineInstance", "VirtualMachine"]


@pytest.mark.parametrize("dry_run", [False, True])
async def test_what_a_webhook_makes_of_it_is_judged_again(
    client: Client, between: Between, asked: list[str], dry_run: bool
):
    between.change = break_the_machine
    for resource, obj in ((VMIS, machine()), (VMS, stopped())):
        asked.clear()
        with pytest.raises(Invalid, match="nowhere"):
            await client.create(resource, obj, dry_run=dry_run)
        assert len(asked) == 2


async def test_a_changed_update_is_judged_again(client: Client, between: Between, asked: list[str]):
    await client.create(VMS, stopped())
    asked.clear()
    await client.patch(VMS, "a", "default", {"metadata": {"labels": {"a": "b"}}})
    assert len(asked) == 1
    between.change = break_the_machine
    with pytest.raises(Invalid, match="nowhere"):
        await client.patch(VMS, "a", "default", {"metadata": {"labels": {"a": "c"}}})
    assert len(asked) == 3


async def test_a_world_that_changed_meanwhile_is_asked_again(client: Client, between: Between, asked: list[str]):
    between.client = client
    await client.create(VMIS, machine())
    assert len(asked) == 2


@pytest.mark.parametrize("dry_run", [False, True])
async def test_what_the_rules_refuse_stays_refused(client: Client, asked: list[str], dry_run: bool):
    with pytest.raises(Invalid, match="nowhere"):
        await client.create(
            VMIS, machine(devices={"disks": [{"name": "nowhere", "disk": {"bus": "virtio"}}]}), dry_run=dry_run
        )
    assert len(asked) == 2


async def test_the_facts_of_the_nodes_are_read_when_one_changes(client: Client, world: ServerWorld):
    assert world.nodes() == ()
    await client.create(HYPERVISOR_NODES, {"metadata": {"name": "n1"}})
    known = world.nodes()
    assert [node.name for node in known] == ["n1"]
    await client.create(VMIS, machine(), dry_run=True)
    assert world.nodes() is known
    await client.create(HYPERVISOR_NODES, {"metadata": {"name": "n2"}})
    assert [node.name for node in world.nodes()] == ["n1", "n2"]
    await client.delete(HYPERVISOR_NODES, "n1")
    assert [node.name for node in world.nodes()] == ["n2"]

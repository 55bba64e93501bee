"""The fleet dry run: from real reviews of VMs to what each would need on another class."""

import json
from typing import Any

import pytest

from anyvisor.admission.config import ClusterConfig
from anyvisor.cli import fleet, review
from anyvisor.gateway.review import Offered
from anyvisor.gateway.review import review as answer
from anyvisor.hri.packages import load
from anyvisor.planning.facts import node_facts

Json = dict[str, Any]


def offered() -> Offered:
    """`full` is what ships, `small` has few CPUs, no TPM and no SATA."""
    manifest = dict(load("qemu").manifest)
    less = {
        "cpu.count": {"state": "yes", "max": 2},
        "device.tpm": {"state": "no"},
        "disk.bus": {"state": "yes", "values": ["virtio"]},
    }
    small = {**manifest, "driver": "small.example.org", "capabilities": {**manifest["capabilities"], **less}}
    drivers = [{"metadata": {"name": each["driver"]}, "spec": {"manifest": each}} for each in (manifest, small)]
    classes = [
        {"metadata": {"name": "full"}, "spec": {"driver": manifest["driver"], "default": True}},
        {"metadata": {"name": "small"}, "spec": {"driver": "small.example.org"}},
    ]
    stated = [{"driver": each["driver"], "healthy": True, "accelerators": ["kvm"]} for each in (manifest, small)]
    return Offered(classes, drivers, [node_facts({"metadata": {"name": "n"}, "status": {"drivers": stated}})], CONFIG)


CONFIG = ClusterConfig.of()


def vm(name: str, status: str = "Stopped", cpu: int = 1, hypervisor: str = "", **devices: Any) -> Json:
    domain = {"cpu": {"sockets": cpu}, "memory": {"guest": "64Mi"}, "devices": devices}
    spec: Json = {"domain": domain, **({"hypervisor": hypervisor} if hypervisor else {})}
    if "disks" in devices:
        spec["volumes"] = [{"name": each["name"], "emptyDisk": {"capacity": "1Gi"}} for each in devices["disks"]]
    return {
        "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"template": {"spec": spec}},
        "status": {"printableStatus": status},
    }


FLEET = [
    vm("plain"),
    vm("runs", "Running"),
    vm("there", "Running", hypervisor="small"),
    vm("old-disk", disks=[{"name": "root", "disk": {"bus": "sata"}}]),
    vm("guarded", tpm={}),
    vm("large", cpu=4),
]


def judged(machine: Json, *classes: str) -> Json:
    """The review's status, as it comes over the wire."""
    found = answer({"spec": {"machine": machine, "classes": list(classes or ["small"])}}, "shop", offered())
    return json.loads(json.dumps(found.body))["status"]


def test_each_vm_of_a_fleet():
    moves = {each["metadata"]["name"]: fleet.move(each, judged(each), "small") for each in FLEET}
    assert {name: each.verdict for name, each in moves.items()} == {
        "plain": "as it is",
        "runs": "as it is",
        "there": "already",
        "old-disk": "with changes",
        "guarded": "with changes",
        "large": "no",
    }
    assert [each.now for each in moves.values()] == ["full", "full", "small", "full", "full", "full"]
    assert moves["plain"].needs == ()
    assert moves["runs"].needs == (fleet.RESTART,)
    assert moves["plain"].patch == ({"op": "add", "path": "/hypervisor", "value": "small"},)
    assert moves["old-disk"].needs == ("domain.devices.disks[0].disk.bus: virtio",)
    assert (moves["old-disk"].cost, moves["guarded"].cost) == ("visible", "feature")
    assert "domain.devices.tpm: remove it" in moves["guarded"].needs
    assert "allows cpu.count up to 2, not 4" in moves["large"].needs[0]


def test_what_stands_against_a_class_that_is_not_there():
    move = fleet.move(vm("plain"), judged(vm("plain"), "none"), "none")
    assert move.verdict == "no"
    assert "there is no hypervisor class 'none'" in move.needs[0]


class FakeApi:
    """The server's part of the command."""

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        if method == "POST" and body is not None:
            return {"status": judged(body["spec"]["machine"], *body["spec"]["classes"])}
        return {"items": FLEET} if path.endswith("virtualmachines") else {}


@pytest.mark.parametrize("output", ["table", "json"])
def test_the_command_shows_all_vms(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str):
    from anyvisor.cli.main import main

    monkeypatch.setattr(review, "connect", FakeApi)
    assert main(["review", "--all", "--class", "small", "-o", output]) == 1
    said = capsys.readouterr().out
    if output == "json":
        assert [each["vm"] for each in json.loads(said)] == [each["metadata"]["name"] for each in FLEET]
        return
    lines = said.splitlines()
    assert lines[0].split("   ")[0].strip() == "NAMESPACE"
    assert lines[-1] == "6 VMs: 1 have class small, 2 could move as they are, 2 with changes, 1 could not"

"""The tree of what a VM depends on."""

import json
from typing import Any

import pytest

from anyvisor.admission.config import ClusterConfig
from anyvisor.gateway.answers import Decision, message_of
from anyvisor.gateway.call import parse_call
from anyvisor.gateway.decide import decide
from anyvisor.gateway.world import World

Json = dict[str, Any]
ROOT = "/apis/subresources.kubevirt.io/v1/namespaces/default"
ON = ClusterConfig.of({"developerConfiguration": {"featureGates": ["ObjectGraph"]}})

SPEC: Json = {
    "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}}}],
    "networks": [{"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "other/lan"}}],
    "volumes": [
        {"name": "a", "dataVolume": {"name": "dv"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "c", "cloudInitNoCloud": {"secretRef": {"name": "user"}}},
        {"name": "d", "configMap": {"name": "map"}},
        {"name": "e", "containerDisk": {"image": "x"}},
    ],
}
VM: Json = {
    "metadata": {"name": "a"},
    "spec": {
        "template": {"spec": SPEC},
        "instancetype": {"name": "u1", "kind": "VirtualMachineClusterInstancetype"},
    },
    "status": {"created": True, "instancetypeRef": {"controllerRevisionRef": {"name": "rev"}}},
}
LISTED: dict[str, list[Json]] = {
    "pods": [
        {"metadata": {"name": "virt-launcher-b", "ownerReferences": [{"kind": "VirtualMachineInstance", "name": "b"}]}},
        {"metadata": {"name": "virt-launcher-a", "ownerReferences": [{"kind": "VirtualMachineInstance", "name": "a"}]}},
    ],
    "persistentvolumeclaims": [{"metadata": {"name": "persistent-state-for-a"}}],
}


def ask(path: str, body: Json | None = None, config: ClusterConfig = ON) -> Decision:
    run = {"metadata": {"name": "a"}, "spec": SPEC, "status": {"phase": "Running"}}
    world = World(VM, run, config=config, listed=LISTED)
    raw = json.dumps(body).encode() if body is not None else b""
    return decide(parse_call("GET", f"{ROOT}/{path}/a/objectgraph", "", raw), world)


def flat(node: Json, depth: int = 0) -> list[str]:
    """`depth kind namespace/name [?]` of each node, in the order of the tree."""
    reference = node["objectReference"]
    mark = " ?" if node.get("optional") else ""
    line = f"{depth} {reference['kind']} {reference['namespace']}/{reference['name']}{mark}"
    return [line, *(below for child in node.get("children", []) for below in flat(child, depth + 1))]


def tree(path: str, body: Json | None = None) -> list[str]:
    found = ask(path, body)
    assert found.status == 200
    assert isinstance(found.body, dict)
    return flat(found.body)


STORAGE = [
    "1 DataVolume default/dv",
    "2 PersistentVolumeClaim default/dv",
    "1 PersistentVolumeClaim default/claim",
]


def test_the_tree_of_a_vm() -> None:
    assert tree("virtualmachines") == [
        "0 VirtualMachine default/a",
        "1 VirtualMachineInstance default/a",
        "2 Pod default/virt-launcher-a",
        "1 VirtualMachineClusterInstancetype /u1 ?",
        "1 ControllerRevision default/rev",
        "1 Secret default/keys",
        *STORAGE,
        "1 Secret default/user",
        "1 ConfigMap default/map",
        "1 PersistentVolumeClaim default/persistent-state-for-a",
        "1 NetworkAttachmentDefinition other/lan ?",
    ]


def test_the_tree_of_a_run() -> None:
    found = tree("virtualmachineinstances")
    assert found[:3] == ["0 VirtualMachineInstance default/a", "1 Pod default/virt-launcher-a", "1 Secret default/keys"]


def test_options_prune_the_tree() -> None:
    storage = {"matchLabels": {"kubevirt.io/dependency-type": "storage"}}
    found = tree("virtualmachines", {"labelSelector": storage})
    assert found == ["0 VirtualMachine default/a", *STORAGE, "1 PersistentVolumeClaim default/persistent-state-for-a"]
    assert not [line for line in tree("virtualmachines", {"includeOptionalNodes": False}) if line.endswith("?")]


@pytest.mark.parametrize(
    ("body", "config", "says"),
    [
        (None, ClusterConfig.of(), "needs the feature gate ObjectGraph"),
        ({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}, ON, "labelSelector"),
        ({"includeOptionalNodes": "no"}, ON, "must be true or false"),
    ],
)
def test_graphs_that_are_refused(body: Json | None, config: ClusterConfig, says: str) -> None:
    found = ask("virtualmachines", body, config)
    assert found.status == 400
    assert says in message_of(found)

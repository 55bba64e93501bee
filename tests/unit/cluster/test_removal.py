"""What an installation leaves on nodes, and what of it is taken away in the end."""

from typing import Any

from anyvisor.cluster import removal

Json = dict[str, Any]
NODE: Json = {
    "metadata": {
        "name": "n",
        "labels": {
            "kubernetes.io/hostname": "n",
            "anyvisor.io/agent": "true",
            "kubevirt.io/schedulable": "true",
            "cpu-model.node.kubevirt.io/EPYC": "true",
            "hv.vendor.example/driver": "true",
            "notkubevirt.io/mine": "yes",
            "plain": "yes",
        },
        "annotations": {"kubevirt.io/heartbeat": "now", "node.alpha.kubernetes.io/ttl": "0"},
    },
    "status": {
        "capacity": {"cpu": "2", "devices.kubevirt.io/kvm": "1k", "devices.kubevirt.io/vhost-net": "0"},
        "allocatable": {"cpu": "2", "devices.kubevirt.io/kvm": "0"},
    },
}


def test_labels_and_annotations_of_ours_and_of_drivers_go_and_no_others() -> None:
    assert removal.without_ours(NODE, ["hv.vendor.example"]) == {
        "labels": {
            "anyvisor.io/agent": None,
            "kubevirt.io/schedulable": None,
            "cpu-model.node.kubevirt.io/EPYC": None,
            "hv.vendor.example/driver": None,
        },
        "annotations": {"kubevirt.io/heartbeat": None},
    }
    assert removal.without_ours({"metadata": {"name": "n", "labels": {"plain": "yes"}}}, []) == {}


def test_devices_go_from_a_nodes_status() -> None:
    assert removal.device_removals(NODE) == [
        {"op": "remove", "path": "/status/capacity/devices.kubevirt.io~1kvm"},
        {"op": "remove", "path": "/status/capacity/devices.kubevirt.io~1vhost-net"},
        {"op": "remove", "path": "/status/allocatable/devices.kubevirt.io~1kvm"},
    ]
    assert removal.device_removals({"status": {"capacity": {"cpu": "2"}}}) == []

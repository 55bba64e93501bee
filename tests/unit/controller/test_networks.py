"""What attached networks ask of the pod."""

from typing import Any

import pytest

from anyvisor.api.names import secondary_interface
from anyvisor.controller.podspec.networks import UnknownAttachmentError, attachment_names, device_resources, known

Json = dict[str, Any]
RESOURCE = "k8s.v1.cni.cncf.io/resourceName"


def multus(name: str, network: str) -> Json:
    return {"name": name, "multus": {"networkName": network}}


def definition(resource: str = "") -> Json:
    return {"metadata": {"annotations": {RESOURCE: resource} if resource else {}}}


NETWORKS: list[Json] = [
    {"name": "default", "pod": {}},
    multus("a", "blue"),
    multus("b", "other/blue"),
    multus("c", "blue"),
]


def test_definitions_are_named_with_their_namespace() -> None:
    assert attachment_names("d", NETWORKS) == ["d/blue", "other/blue", "d/blue"]


def test_devices_are_counted_per_network() -> None:
    found = {"d/blue": definition("vendor/nic"), "other/blue": definition()}
    assert device_resources("d", NETWORKS, found) == {"vendor/nic": 2}


def test_a_definition_that_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownAttachmentError, match="other/blue"):
        device_resources("d", NETWORKS, {"d/blue": definition()})


def test_pod_interfaces_fit_the_kernel_and_depend_on_the_network_alone() -> None:
    assert secondary_interface("blue") == secondary_interface("blue") != secondary_interface("red")
    assert len(secondary_interface("a network of a very long name")) < 15


def test_where_nobody_serves_the_kind_it_is_said_who_does() -> None:
    with pytest.raises(
        UnknownAttachmentError, match="d/blue, and the cluster serves none of that kind; install Multus"
    ):
        known("d", NETWORKS, None)
    assert known("d", NETWORKS[:1], None) == {}
    assert known("d", NETWORKS, {}) == {}

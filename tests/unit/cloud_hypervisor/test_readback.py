"""What is read from `vm.info`, of any form."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyvisor.drivers.cloud_hypervisor import readback
from anyvisor.hri.v1.types_pb2 import DeviceState

INFO: dict[str, Any] = {
    "config": {
        "cpus": {"boot_vcpus": 2, "max_vcpus": 8, "topology": {"cores_per_die": 2, "threads_per_core": 1}},
        "memory": {"size": 1 << 30, "shared": False},
        "platform": {"system_uuid": "u"},
        "disks": [
            {"id": "root", "path": "/proc/self/fd/5", "image_type": "Raw", "readonly": False, "pci_device_id": 5}
        ],
        "net": [{"id": "nic", "pci_device_id": 6}],
        "rng": {"id": "rng0"},
    },
    "state": "Running",
    "device_tree": {
        "_virtio-pci-root": {"pci_bdf": "0000:00:05.0", "children": ["root"]},
        "root": {"children": []},
        "_virtio-pci-leaving": {"pci_bdf": "0000:00:09.0", "children": ["leaving"]},
        "leaving": {"children": []},
        "__pvpanic": {"pci_bdf": "0000:00:01.0", "children": []},
    },
}


def test_devices_are_those_of_the_config_and_those_that_leave() -> None:
    found = {device.id: (device.address, device.state) for device in readback.devices(INFO)}
    assert found == {
        "root": ("0000:00:05.0", DeviceState.STATE_PLUGGED),
        "nic": ("", DeviceState.STATE_PLUGGED),
        "rng0": ("", DeviceState.STATE_PLUGGED),
        "leaving": ("0000:00:09.0", DeviceState.STATE_UNPLUGGING),
    }
    assert readback.taken_slots(INFO) == {1, 5, 6, 9}
    assert readback.still_plugged(INFO, "leaving")
    assert not readback.has_device(INFO, "disks", "leaving")


def test_numbers() -> None:
    assert (readback.vcpus(INFO), readback.per_socket(INFO), readback.memory(INFO)) == ((2, 8), 2, 1 << 30)
    assert readback.system_uuid(INFO) == "u"


@pytest.mark.parametrize(
    ("part", "wanted", "paths"),
    [
        ("disks", [{"id": "root", "image_type": "Raw", "readonly": False}], []),
        ("disks", [{"id": "root", "image_type": "Qcow2"}], ["disks[root].image_type"]),
        ("disks", [{"id": "other", "readonly": True}], ["disks[other].readonly"]),
        ("cpus", {"boot_vcpus": 1, "max_vcpus": 8}, ["cpus.boot_vcpus"]),
        ("serial", {"mode": "Socket"}, []),
    ],
)
def test_differences(part: str, wanted: Any, paths: list[str]) -> None:
    assert readback.differences({part: wanted}, INFO) == paths


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["config", "disks", "net", "cpus", "memory", "device_tree", "id", "pci_bdf", "children", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["config", "device_tree", "state"]), JUNK))
def test_nothing_is_trusted(info: dict[str, Any]) -> None:
    readback.devices(info)
    readback.taken_slots(info)
    readback.vcpus(info)
    readback.memory(info)
    readback.per_socket(info)
    assert readback.differences({"cpus": {"boot_vcpus": 1}}, info) in (["cpus.boot_vcpus"], [])

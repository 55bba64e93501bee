"""Equality as typed objects have it."""

from typing import Any

import pytest

from anyvisor.controller.semantic import equal


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({}, {"labels": {}}, True),
        ({"hotpluggable": False}, {}, True),
        ({"name": ""}, {}, True),
        ({"disks": []}, {"disks": None}, True),
        ({"memory": {"guest": "1Gi"}}, {"memory": {"guest": "1024Mi"}}, True),
        ({"requests": {"cpu": 1}}, {"requests": {"cpu": "1000m"}}, True),
        ({"hostname": "1024Mi"}, {"hostname": "1Gi"}, False),
        ({"memory": {"guest": "1Gi"}}, {"memory": {"guest": "many"}}, False),
        ({"disks": [{"name": "a"}]}, {"disks": [{"name": "a"}, {"name": "b"}]}, False),
        ({"bridge": {}}, {"masquerade": {}}, False),
        ({"devices": {"rng": {}}}, {"devices": {}}, False),
        ({"autoattachSerialConsole": False}, {}, False),
        ({"acpi": {"enabled": False}}, {"acpi": {}}, False),
    ],
)
def test_equal(left: Any, right: Any, *, same: bool) -> None:
    assert equal(left, right) is same
    assert equal(right, left) is same

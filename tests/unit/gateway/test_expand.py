"""Instance types and preferences applied to a template."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.api.instancetypes import apply, topology

Json = dict[str, Any]


def template(**domain: Any) -> Json:
    return {"spec": {"domain": domain}}


def size(**more: Any) -> Json:
    return {"cpu": {"guest": 4}, "memory": {"guest": "2Gi"}, **more}


def test_a_size_sets_processors_memory_and_devices() -> None:
    found = template(devices={})
    wanted = size(
        cpu={"guest": 4, "model": "host-model", "dedicatedCPUPlacement": True},
        memory={"guest": "2Gi", "overcommitPercent": 25},
        gpus=[{"name": "g"}],
        nodeSelector={"a": "b"},
        annotations={"c": "d"},
        schedulerName="s",
        ioThreadsPolicy="auto",
    )
    assert apply(wanted, None, found) == []
    domain = found["spec"]["domain"]
    expected = {"sockets": 4, "cores": 1, "threads": 1, "model": "host-model", "dedicatedCpuPlacement": True}
    assert domain["cpu"] == expected
    assert domain["memory"] == {"guest": "2Gi"}
    assert domain["resources"] == {"requests": {"memory": "1536Mi"}}
    assert domain["devices"] == {"gpus": [{"name": "g"}]}
    assert domain["ioThreadsPolicy"] == "auto"
    assert found["spec"]["nodeSelector"] == {"a": "b"}
    assert found["metadata"] == {"annotations": {"c": "d"}}


@pytest.mark.parametrize(
    ("domain", "more", "conflicts"),
    [
        ({"cpu": {"cores": 2}}, {}, ["spec.domain.cpu.cores"]),
        ({"cpu": {"model": "m"}}, {}, []),
        ({"cpu": {"model": "m"}}, {"cpu": {"guest": 1, "model": "n"}}, ["spec.domain.cpu.model"]),
        ({"memory": {"guest": "1Gi"}}, {}, ["spec.domain.memory.guest"]),
        ({"resources": {"requests": {"cpu": "1"}}}, {}, ["spec.domain.resources.requests.cpu"]),
        ({"resources": {"limits": {"memory": "1"}}}, {}, ["spec.domain.resources.limits.memory"]),
        ({"devices": {"gpus": [{"name": "f"}]}}, {"gpus": [{"name": "g"}]}, ["spec.domain.devices.gpus"]),
        (
            {"launchSecurity": {"sev": {"policy": None}}},
            {"launchSecurity": {"sev": {"policy": None}}},
            ["spec.domain.launchSecurity"],
        ),
    ],
)
def test_what_both_say_is_a_conflict(domain: Json, more: Json, conflicts: list[str]) -> None:
    assert apply(size(**more), None, template(**domain)) == conflicts


def test_labels_that_agree_are_no_conflict() -> None:
    found = {"metadata": {"annotations": {"a": "1"}}, "spec": {"nodeSelector": {"n": "1"}}}
    assert apply(size(annotations={"a": "1"}, nodeSelector={"n": "1"}), None, found) == []
    assert apply(size(annotations={"a": "2"}), None, {"metadata": {"annotations": {"a": "1"}}}) == [
        "metadata.annotations.a"
    ]


@pytest.mark.parametrize(
    ("preference", "shape"),
    [
        ({}, (8, 1, 1)),
        ({"preferredCPUTopology": "cores"}, (1, 8, 1)),
        ({"preferredCPUTopology": "preferThreads"}, (1, 1, 8)),
        ({"preferredCPUTopology": "any"}, (8, 1, 1)),
        ({"preferredCPUTopology": "spread"}, (4, 2, 1)),
        ({"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 4}}, (2, 4, 1)),
        ({"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads"}}, (1, 4, 2)),
        ({"preferredCPUTopology": "spread", "spreadOptions": {"across": "SocketsCoresThreads"}}, (2, 2, 2)),
    ],
)
def test_topologies(preference: Json, shape: tuple[int, int, int]) -> None:
    found = topology(8, preference)
    assert (found["sockets"], found["cores"], found["threads"]) == shape


@given(st.sampled_from(["sockets", "cores", "threads", "any", ""]), st.integers(1, 512))
def test_an_unspread_topology_has_as_many_processors_as_the_size(kind: str, vcpus: int) -> None:
    found = topology(vcpus, {"preferredCPUTopology": kind})
    assert found["sockets"] * found["cores"] * found["threads"] == vcpus


def test_a_preference_fills_only_what_nobody_said() -> None:
    found = template(
        machine={"type": "mine"},
        devices={
            "disks": [{"name": "a"}, {"name": "b", "disk": {"bus": "sata"}}, {"name": "c", "cdrom": {}}],
            "interfaces": [{"name": "n"}],
        },
    )
    preference: Json = {
        "machine": {"preferredMachineType": "theirs"},
        "clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": {"hpet": {"present": False}}},
        "firmware": {"preferredUseEfi": True},
        "features": {"preferredSmm": {}},
        "devices": {
            "preferredDiskBus": "virtio",
            "preferredCdromBus": "scsi",
            "preferredDiskCache": "none",
            "preferredInterfaceModel": "e1000e",
            "preferredTPM": {"persistent": True},
        },
        "preferredTerminationGracePeriodSeconds": 10,
        "annotations": {"a": "b"},
    }
    assert apply(None, preference, found) == []
    domain = found["spec"]["domain"]
    assert domain["machine"] == {"type": "mine"}
    assert domain["clock"] == {"utc": {}, "timer": {"hpet": {"present": False}}}
    assert domain["firmware"] == {"bootloader": {"efi": {"secureBoot": False}}}
    assert domain["features"] == {"smm": {}}
    assert domain["devices"]["disks"] == [
        {"name": "a", "disk": {"bus": "virtio"}, "cache": "none"},
        {"name": "b", "disk": {"bus": "sata"}, "cache": "none"},
        {"name": "c", "cdrom": {"bus": "scsi"}},
    ]
    assert domain["devices"]["interfaces"] == [{"name": "n", "model": "e1000e"}]
    assert domain["devices"]["tpm"] == {"persistent": True}
    assert found["spec"]["terminationGracePeriodSeconds"] == 10
    assert found["metadata"] == {"annotations": {"a": "b"}}

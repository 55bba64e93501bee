"""Containers of the launcher pod that only a cluster's kubelet runs."""

from typing import Any

import pytest

from anyvisor.controller.launch import Launch
from anyvisor.controller.podspec.render import PodContext, render
from anyvisor.controller.settings import Settings
from tests.unit.controller.test_pod import compute, vmi

Json = dict[str, Any]
LAUNCH = Launch(image="launcher:1", overhead_bytes=0)
WITHOUT_IMAGES = Settings({"developerConfiguration": {"disabledFeatureGates": ["ImageVolume"]}})
DISKS = [{"name": "root", "containerDisk": {"image": "a:1"}}, {"name": "data", "containerDisk": {"image": "b:1"}}]
BOOT = {"kernelBoot": {"container": {"image": "k:1", "kernelPath": "/boot/vmlinuz", "initrdPath": "initrd"}}}


def extra(asked: Json, **context: Any) -> dict[str, Json]:
    pod = render(asked, LAUNCH, PodContext(on_cluster=True, **context))
    return {one["name"]: one for one in pod["spec"].get("initContainers", [])}


@pytest.mark.parametrize(
    ("devices", "there"),
    [
        ({"logSerialConsole": True}, True),
        ({"logSerialConsole": True, "autoattachSerialConsole": False}, False),
        ({"logSerialConsole": False}, False),
        ({}, False),
    ],
)
def test_the_consoles_log_is_a_container_where_it_is_asked_for(devices: Json, there: bool) -> None:
    found = extra(vmi(domain={"devices": devices}))
    assert ("guest-console-log" in found) is there
    if there:
        log = found["guest-console-log"]
        assert log["restartPolicy"] == "Always"
        assert log["command"][-3:] == ["log", "/run/l", "serial0.log"]
        assert log["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert log["volumeMounts"] == [{"name": "l", "mountPath": "/run/l", "readOnly": True}]


def test_a_guaranteed_pod_stays_one() -> None:
    domain = {"devices": {"logSerialConsole": True}, "cpu": {"cores": 1, "dedicatedCpuPlacement": True}}
    resources = extra(vmi(domain=domain))["guest-console-log"]["resources"]
    assert resources["requests"] == resources["limits"]


def test_one_machine_needs_none_of_them() -> None:
    asked = vmi(domain={"devices": {"logSerialConsole": True}}, volumes=DISKS)
    pod = render(asked, LAUNCH, PodContext(settings=WITHOUT_IMAGES))
    assert "initContainers" not in pod["spec"]
    assert not {"root", "data"} & {one["name"] for one in pod["spec"]["volumes"]}


def test_images_are_volumes_where_the_cluster_has_them() -> None:
    pod = render(vmi(volumes=DISKS, domain={"firmware": BOOT}), LAUNCH, PodContext(on_cluster=True))
    assert "initContainers" not in pod["spec"]
    assert {one["name"]: one["image"] for one in pod["spec"]["volumes"] if "image" in one} == {
        "root": {"reference": "a:1"},
        "data": {"reference": "b:1"},
        "kernel-boot-volume": {"reference": "k:1"},
    }


@pytest.mark.parametrize("context", [{"settings": WITHOUT_IMAGES}, {"image_volumes": False}])
def test_disks_are_copied_where_images_cannot_be_volumes(context: Json) -> None:
    disks = [DISKS[0], {"name": "data", "containerDisk": {"image": "b:1", "path": "/custom/disk.img"}}]
    asked = vmi(volumes=disks, domain={"firmware": BOOT})
    found = extra(asked, **context)
    assert list(found) == ["copier", "container-disk-0", "container-disk-1", "container-disk-2"]
    assert found["copier"]["image"] == "launcher:1"
    words = {name: (one["image"], one["command"][5:]) for name, one in found.items() if name != "copier"}
    assert words == {
        "container-disk-0": ("a:1", ["/disk", "/target"]),
        "container-disk-1": ("b:1", ["/custom/disk.img", "/target/custom"]),
        "container-disk-2": ("k:1", ["/boot/vmlinuz", "/target/boot", "/initrd", "/target"]),
    }
    pod = render(asked, LAUNCH, PodContext(on_cluster=True, **context))
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    mounts = {one["name"]: one for one in compute(pod)["volumeMounts"]}
    for name in ("root", "data", "kernel-boot-volume"):
        assert volumes[name]["emptyDir"] == {}
        assert mounts[name] == {"name": name, "mountPath": f"/run/volumes/{name}", "readOnly": True}
    assert "copy" not in mounts

"""Disks that are filled and last: through kill -9 in the middle, restarts of their VM, and by one command."""

import json
from typing import Any

from tests.e2e.conftest import Instance, eventually, tiny_vm
from tests.guests import disk_archive
from tests.web import serving


def phase(instance: Instance, name: str) -> str:
    return (instance.get("dv", name) or {}).get("status", {}).get("phase", "")


def image(instance: Instance) -> bytes:
    """The disk that boots."""
    listed = json.loads(instance.cli("image", "list", "-o", "json"))["items"]
    [file] = next(each["files"] for each in listed if each["reference"] == "disk:latest")
    return (instance.data_dir / "images/blobs/sha256" / file["sha256"]).read_bytes()


def vm_on(claim: str) -> dict[str, Any]:
    vm = tiny_vm("lasting")
    spec = vm["spec"]["template"]["spec"]
    del spec["domain"]["firmware"]
    spec["domain"]["devices"]["disks"] = [{"name": "root", "disk": {"bus": "virtio"}}]
    spec["volumes"] = [{"name": "root", "dataVolume": {"name": claim}}]
    return vm


def test_a_fill_survives_kill_9_and_its_vm_waits_for_it(shared: Instance) -> None:
    assert disk_archive().exists()
    with serving() as web:
        web.files["/disk"] = image(shared)
        web.held.add("/disk")
        source = {
            "source": {"http": {"url": web.url("/disk")}},
            "storage": {"resources": {"requests": {"storage": "8Mi"}}},
        }
        volume = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "root"}}
        shared.apply({**volume, "spec": source})
        shared.apply(vm_on("root"))
        eventually(lambda: bool(web.asked), 60, lambda: shared.story("lasting"))
        eventually(
            lambda: "waits for its disk root: ImportInProgress" in shared.cli("why", "lasting", check=False),
            60,
            lambda: shared.story("lasting"),
        )
        assert "Provisioning" in shared.cli("list")
        shared.kill("agent-node-1")
        web.held.clear()
        web.hold.set()
        eventually(lambda: phase(shared, "root") == "Succeeded", 120, lambda: shared.story("lasting"))
    shared.wait_phase("lasting")
    assert shared.counter("lasting") > 0
    shared.kubectl("delete", "vm", "lasting")
    shared.kubectl("delete", "dv", "root")
    eventually(lambda: shared.get("pvc", "root") is None, 60)


def test_one_command_makes_a_vm_with_a_lasting_disk(shared: Instance) -> None:
    refused = shared.cli("run", "disk", "--disk-size", "1Ki", check=False)
    assert "--disk-size 1Ki is less than the image's disk has" in refused
    shared.cli("run", "disk", "--name", "own", "--memory", "64Mi", "--disk-size", "16Mi", "--wait")
    assert shared.counter("own") > 0
    [claim] = [each for each in shared.items("pvc") if each["metadata"]["name"] == "own-disk"]
    assert claim["status"]["capacity"]["storage"] == "16Mi"
    shared.kubectl("delete", "vm", "own")
    eventually(lambda: shared.items("pv") == [], 60)


def test_what_cannot_be_filled_is_told_on_the_vm(shared: Instance) -> None:
    vm = vm_on("small")
    claim = {"resources": {"requests": {"storage": "512"}}}
    template = {
        "metadata": {"name": "small"},
        "spec": {"source": {"registry": {"url": "docker://disk"}}, "storage": claim},
    }
    vm["spec"]["dataVolumeTemplates"] = [template]
    shared.apply(vm)

    def told() -> bool:
        return "and claim small asks for 512; delete it" in shared.cli("why", "lasting", check=False)

    eventually(told, 60, lambda: shared.story("lasting"))
    assert "DataVolumeError" in shared.cli("list")
    shared.kubectl("delete", "vm", "lasting")
    eventually(lambda: shared.items("dv") == [], 60)

"""Bad input is answered on the object, in one sentence, and harms nothing else."""

import json
import socket
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from anyvisor.agent.volumes import qcow2
from tests.e2e.conftest import Instance, disk_vm, eventually, tiny_vm


def refused(instance: Instance, vm: dict[str, Any]) -> str:
    answer = instance.kubectl("create", "-f", "-", stdin=json.dumps(vm), check=False)
    assert instance.get("vm", vm["metadata"]["name"]) is None, answer
    return answer


def why(instance: Instance, name: str, words: str) -> None:
    eventually(lambda: words in instance.cli("why", name, check=False), 30, lambda: instance.story(name))


def test_an_unknown_image_is_named_with_the_next_step(shared: Instance, tmp_path: Path) -> None:
    shared.apply(disk_vm("noimage", "nothing/like:this"))
    why(shared, "noimage", "anyvisor image import FILE --name nothing/like:this")
    disk = tmp_path / "disk.raw"
    disk.write_bytes(b"\0" * 4096)
    shared.cli("image", "import", str(disk), "--name", "nothing/like:this")
    shared.wait_phase("noimage")
    shared.kubectl("delete", "vm", "noimage")


def test_a_corrupt_image_is_refused_at_import(shared: Instance, tmp_path: Path) -> None:
    image = tmp_path / "bad.qcow2"
    image.write_bytes(qcow2.empty(1 << 30)[:1000])
    assert "damaged" in shared.cli("image", "import", str(image), "--name", "bad", check=False)


def test_a_foreign_backing_file_is_refused_at_import(shared: Instance, tmp_path: Path) -> None:
    image = bytearray(qcow2.empty(1 << 30))
    image[8:16] = (512).to_bytes(8, "big")
    image[512:523] = b"/etc/shadow"
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        (tmp_path / "disk.qcow2").write_bytes(image)
        tar.add(tmp_path / "disk.qcow2", "disk/disk.qcow2")
    answer = shared.cli("image", "import", str(tmp_path / "image.tar"), "--name", "bad", check=False)
    assert "/etc/shadow" in answer
    assert "bad" not in shared.cli("image", "list")


def test_memory_of_zero_is_refused(shared: Instance) -> None:
    assert "memory" in refused(shared, tiny_vm("zero", memory={"guest": "0"}))


def test_more_memory_than_the_host_has_says_so(shared: Instance) -> None:
    shared.apply(tiny_vm("huge", memory={"guest": "512Gi"}))
    why(shared, "huge", "nsufficient memory")
    eventually(lambda: (shared.get("vm", "huge") or {})["status"]["printableStatus"] == "ErrorUnschedulable", 20)
    shared.kubectl("delete", "vm", "huge")


def test_duplicate_disks_are_refused(shared: Instance) -> None:
    vm = disk_vm("twice")
    disks = vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    disks.append(dict(disks[0]))
    assert "disks[1]" in refused(shared, vm)


def test_an_unknown_hypervisor_is_refused_with_the_known_ones(shared: Instance) -> None:
    vm = tiny_vm("odd")
    vm["spec"]["template"]["spec"]["hypervisor"] = "nonesuch"
    answer = refused(shared, vm)
    assert "nonesuch" in answer
    assert "qemu" in answer


@pytest.mark.parametrize("length", [63, 253])
def test_long_names_work(shared: Instance, length: int) -> None:
    name = ("n" * 60 + ".") * 4 + "n" * 60
    name = name[:length].rstrip(".")
    shared.apply(tiny_vm(name))
    shared.wait_phase(name)
    assert shared.counter(name) > 0
    shared.kubectl("delete", "vm", name)


def test_a_name_that_is_too_long_is_refused(shared: Instance) -> None:
    vm = tiny_vm("x")
    vm["metadata"]["name"] = "n" * 254
    answer = shared.kubectl("create", "-f", "-", stdin=json.dumps(vm), check=False)
    assert "253" in answer


def test_a_vmm_that_dies_at_once_is_told_and_backed_off(shared: Instance, tmp_path: Path) -> None:
    (tmp_path / "vmlinuz").write_bytes(b"this is no kernel" * 100)
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        tar.add(tmp_path / "vmlinuz", "boot/vmlinuz")
    shared.cli("image", "import", str(tmp_path / "image.tar"), "--name", "nokernel")
    vm = tiny_vm("dies")
    container = vm["spec"]["template"]["spec"]["domain"]["firmware"]["kernelBoot"]["container"]
    container["image"] = "nokernel"
    shared.apply(vm)
    eventually(
        lambda: (
            (shared.get("vm", "dies") or {}).get("status", {}).get("startFailure", {}).get("consecutiveFailCount", 0)
            >= 1
        ),
        60,
        lambda: shared.story("dies"),
    )
    why(shared, "dies", "kernel")
    shared.kubectl("delete", "vm", "dies")
    assert shared.get("vmi", "dies") is None


def test_a_flooding_console_freezes_neither_the_guest_nor_us(shared: Instance) -> None:
    shared.apply(tiny_vm("flood"))
    shared.wait_phase("flood")
    shared.counter("flood")
    shared.cli("console", "flood", "--seconds", "1", stdin="flood\n", check=False)
    time.sleep(3)
    first = shared.console("flood")
    assert "flood 0123456789" in first
    logs = [path for path in shared.data_dir.rglob("*") if path.is_file() and "serial" in path.name]
    assert all(path.stat().st_size <= 2 << 20 for path in logs)
    shared.kubectl("delete", "vm", "flood")
    assert shared.get("vmi", "flood") is None


def test_a_disk_that_cannot_be_opened_is_told_until_it_is_repaired(shared: Instance) -> None:
    resources = {"requests": {"storage": "1Mi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    shared.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec})
    shared.kubectl("wait", "pvc/data", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s")
    directory = shared.data_dir / "volumes" / shared.items("persistentvolumes")[0]["metadata"]["name"]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "disk.img").symlink_to("/etc/passwd")
    vm = tiny_vm("unreadable")
    vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = [{"name": "d", "disk": {"bus": "virtio"}}]
    vm["spec"]["template"]["spec"]["volumes"] = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    shared.apply(vm)
    why(shared, "unreadable", f"the disk of volume {directory.name} cannot be opened")
    assert shared.phase("unreadable") == "Scheduled"
    (directory / "disk.img").unlink()
    shared.wait_phase("unreadable")
    shared.kubectl("delete", "vm", "unreadable")


def test_a_port_that_another_program_has_taken_is_left_to_it(shared: Instance) -> None:
    shared.cli("down")
    port = json.loads((shared.data_dir / "instance.json").read_text())["apiPort"]
    with socket.create_server(("127.0.0.1", port)):
        shared.up()
        assert json.loads((shared.data_dir / "instance.json").read_text())["apiPort"] != port
        assert f":{port}\n" not in (shared.data_dir / "kubeconfig").read_text()
        assert "node-1" in shared.kubectl("get", "nodes", "-o", "name")


def test_other_pods_are_refused_with_a_sentence(shared: Instance) -> None:
    answer = shared.kubectl("run", "nginx", "--image=nginx", check=False)
    assert "launcher" in answer
    assert shared.get("pod", "nginx") is None

"""Every kind of volume, in one guest that reads them back."""

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.drivers.qemu import fileserver
from tests.e2e.conftest import Instance, end, eventually, make_instance, tiny_vm
from tests.guests import linux_archive

SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ alice"


@pytest.fixture(scope="module")
def instance() -> Generator[Instance]:
    """An instance with the Linux guest, and the gates that the volumes need."""
    made = make_instance()
    made.cli("image", "import", str(linux_archive()), "--name", "linux")
    made.up()
    gates = {"developerConfiguration": {"featureGates": ["HostDisk", "EnableVirtioFsStorageVolumes"]}}
    configuration = {"spec": {"configuration": gates}}
    made.kubectl("patch", "kubevirt", "-n", "kubevirt", "kubevirt", "--type=merge", "-p", json.dumps(configuration))
    yield made
    end(made)


def linux_vm(name: str, *volumes: dict[str, Any], bus: str = "virtio") -> dict[str, Any]:
    """A VM with the Linux guest and a disk for each volume."""
    vm = tiny_vm(name)
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["memory"]["guest"] = "128Mi"
    container = {"image": "linux", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"}
    spec["domain"]["firmware"]["kernelBoot"] = {"kernelArgs": "console=ttyS0 quiet panic=-1", "container": container}
    spec["volumes"] = list(volumes)
    spec["domain"]["devices"]["disks"] = [
        {"name": v["name"], "disk": {"bus": bus}, "serial": v["name"]} for v in volumes
    ]
    return vm


def ask(instance: Instance, name: str, command: str, seconds: float = 1.5) -> str:
    """What a command prints on the guest's console; the echo of the typed line does not count."""
    marker = f"{time.monotonic_ns():x}"
    typed = f"touch /run/quiet; echo BEGIN''-{marker}; {command}; echo END''-{marker}\n"
    found: list[str] = []

    def answered() -> bool:
        shown = instance.cli("console", name, "--seconds", str(seconds), stdin=typed, check=False).replace("\r", "")
        found[:] = re.findall(f"BEGIN-{marker}\n(.*?)END-{marker}", shown, re.DOTALL)
        return bool(found)

    eventually(answered, 60, lambda: instance.story(name))
    return found[-1]


def booted(instance: Instance, name: str) -> None:
    eventually(lambda: "ANYVISOR ready" in instance.console(name), 180, lambda: instance.story(name))


READ_ALL = (
    'for b in /sys/block/vd*; do s=$(cat $b/serial); echo "disk $s ${b##*/} $(cat $b/size)"; mkdir -p /m/$s; '
    "mount -t iso9660 -o ro /dev/${b##*/} /m/$s 2>/dev/null; done; cd /m; "
    'find . -type f | while read -r f; do echo "== $f"; cat "$f"; echo; done; cd /'
)
"""Each disk with its serial number, name and sectors, and all files of all media with their content."""


def secret(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def test_every_kind_of_configuration_reaches_the_guest(instance: Instance, tmp_path: Path) -> None:
    place = Path("/srv") / instance.identity if os.geteuid() == 0 else tmp_path
    config = {"app.conf": "answer=42", "Autounattend.xml": "<unattend/>"}
    instance.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": config})
    instance.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    instance.apply(secret("keys", alice=SSH_KEY))
    fields = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    vm = linux_vm(
        "all",
        {"name": "conf", "configMap": {"name": "conf"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "down", "downwardAPI": {"fields": fields}},
        {"name": "robot", "serviceAccount": {"serviceAccountName": "robot"}},
        {"name": "prep", "sysprep": {"configMap": {"name": "conf"}}},
        {"name": "seed", "cloudInitConfigDrive": {"secretRef": {"name": "late"}}},
        {"name": "host", "hostDisk": {"path": f"{place}/host.img", "type": "DiskOrCreate", "capacity": "1Mi"}},
        {"name": "empty", "emptyDisk": {"capacity": "2Mi"}},
    )
    key: dict[str, Any] = {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"configDrive": {}}}
    vm["spec"]["template"]["spec"]["accessCredentials"] = [{"sshPublicKey": key}]
    instance.apply(vm)
    try:
        eventually(
            lambda: "Secret 'late', which does not exist; create it" in instance.cli("why", "all", check=False),
            30,
            lambda: instance.story("all"),
        )
        instance.apply(secret("late", userdata="#cloud-config\n"))
        instance.wait_phase("all")
        booted(instance, "all")
        shown = ask(instance, "all", READ_ALL)
        check_media(shown)
        host, sectors = re.findall(r"disk host (\w+) (\d+)", shown)[0]
        assert sectors == "2048"
        ask(instance, "all", f"echo kept | dd of=/dev/{host} conv=fsync 2>/dev/null")
        instance.kubectl("delete", "vm", "all")
        assert (place / "host.img").read_bytes()[:4] == b"kept"
    finally:
        (place / "host.img").unlink(missing_ok=True)
        if place != tmp_path and place.exists():
            place.rmdir()


def check_media(shown: str) -> None:
    """Each medium has what its object holds."""
    assert "== ./conf/app.conf\nanswer=42" in shown
    assert f"== ./keys/alice\n{SSH_KEY}" in shown
    assert 'kubevirt.io="virt-launcher"' in shown
    assert "== ./robot/namespace\ndefault" in shown
    assert "== ./robot/ca.crt\n-----BEGIN CERTIFICATE" in shown
    assert "== ./prep/Autounattend.xml\n<unattend/>" in shown
    assert "== ./seed/openstack/latest/user_data\n#cloud-config" in shown
    assert f'"public_keys": {{"0": "{SSH_KEY}"}}' in shown
    assert re.search(r"disk empty \w+ 4096", shown)


SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"


def claim(name: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Mi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def add_volume(instance: Instance, vm: str, name: str, bus: str) -> None:
    source = {"persistentVolumeClaim": {"claimName": name}}
    options = {"name": name, "disk": {"disk": {"bus": bus}}, "volumeSource": source}
    put(instance, vm, "addvolume", options)


def put(instance: Instance, vm: str, verb: str, options: dict[str, Any]) -> None:
    instance.kubectl("replace", "--raw", f"{SUBRESOURCES}/{vm}/{verb}", "-f", "-", stdin=json.dumps(options))


def entry(instance: Instance, vm: str, name: str) -> dict[str, Any]:
    """The volume's entry in the VMI's status; empty when there is none."""
    found: dict[str, Any] = instance.get("vmi", vm) or {}
    listed: list[dict[str, Any]] = found.get("status", {}).get("volumeStatus") or []
    none: dict[str, Any] = {}
    return next((each for each in listed if each["name"] == name), none)


def in_phase(instance: Instance, vm: str, name: str, phase: str) -> None:
    """Wait for the phase of a volume; empty: it is gone."""
    eventually(
        lambda: entry(instance, vm, name).get("phase", "") == phase,
        60,
        lambda: f"{entry(instance, vm, name)}\n{instance.story(vm)}",
    )


def disks_of(instance: Instance, vm: str) -> set[str]:
    """Serial numbers of the guest's disks; those on SCSI tell theirs in a page of their own."""
    command = (
        "for b in /sys/block/vd* /sys/block/sd*; do [ -e $b ] || continue; "
        "echo disk=$(cat $b/serial 2>/dev/null || tail -c +5 $b/device/vpd_pg80); done"
    )
    return set(re.findall(r"disk=(\w+)", ask(instance, vm, command)))


def set_medium(instance: Instance, vm: str, *volumes: dict[str, Any]) -> None:
    found = instance.get("vm", vm)
    assert found is not None
    listed: list[dict[str, Any]] = found["spec"]["template"]["spec"].get("volumes") or []
    kept = [each for each in listed if each["name"] != "cd"]
    patch: dict[str, Any] = {"spec": {"template": {"spec": {"volumes": [*kept, *volumes]}}}}
    instance.kubectl("patch", "vm", vm, "--type=merge", "-p", json.dumps(patch))


IDENTITY = (
    "cat /sys/class/dmi/id/product_uuid /sys/class/dmi/id/product_serial; "
    "for n in /sys/class/net/eth*; do echo net $(cat $n/address) $(readlink -f $n/device); done; "
    "for b in /sys/block/vd*; do echo disk $(cat $b/serial) $(readlink -f $b/device); done"
)
"""What a guest knows its machine by: the same in the next run, also of what came while this one ran."""


def uid_of(instance: Instance) -> str:
    """Of the VMI; empty when there is none."""
    found: dict[str, Any] = instance.get("vmi", "hot") or {"metadata": {"uid": ""}}
    return str(found["metadata"]["uid"])


def change_sockets(instance: Instance, vm: str) -> None:
    """One more CPU socket comes while the guest runs; under emulation, and beyond its places, it needs a restart."""

    def ask_for(sockets: int) -> None:
        spec = {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": sockets}}}}}}
        instance.kubectl("patch", "vm", vm, "--type=merge", "-p", json.dumps(spec))

    def status(kind: str) -> dict[str, Any]:
        found: dict[str, Any] = instance.get(kind, vm) or {}
        return found["status"]

    def restart_required() -> bool:
        return any(each["type"] == "RestartRequired" for each in status("vm").get("conditions", []))

    def change() -> list[dict[str, Any]]:
        return [each for each in status("vmi")["conditions"] if each["type"] == "HotVCPUChange"]

    ask_for(2)
    if status("vmi")["hypervisor"]["accelerator"] == "emulation":
        eventually(restart_required, 60, lambda: instance.story(vm))
        assert "software emulation" in change()[0]["message"]
        assert status("vmi")["currentCPUTopology"]["sockets"] == 1
        ask_for(1)
        return
    eventually(lambda: status("vmi")["currentCPUTopology"]["sockets"] == 2, 60, lambda: instance.story(vm))
    assert "cpus=2\n" in ask(instance, vm, "echo cpus=$(ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l)")
    assert not restart_required()
    assert not change()
    ask_for(9)
    eventually(restart_required, 60, lambda: instance.story(vm))
    ask_for(2)
    eventually(lambda: not restart_required(), 60, lambda: instance.story(vm))


def test_disks_and_media_come_and_go(instance: Instance) -> None:
    for name in ("one", "two", "film"):
        instance.apply(claim(name))
    vm = linux_vm("hot")
    vm["spec"]["template"]["spec"]["domain"]["cpu"] = {"sockets": 1}
    vm["spec"]["template"]["spec"]["domain"]["firmware"]["serial"] = "hot-serial"
    vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"] = [{"name": "cd", "cdrom": {"bus": "scsi"}}]
    instance.apply(vm)
    instance.apply(tiny_vm("other"))
    instance.wait_phase("hot")
    booted(instance, "hot")
    assert disks_of(instance, "hot") == set()
    change_sockets(instance, "hot")

    add_volume(instance, "hot", "one", "scsi")
    add_volume(instance, "hot", "two", "virtio")
    for name in ("one", "two"):
        in_phase(instance, "hot", name, "Ready")
    assert disks_of(instance, "hot") == {"one", "two"}
    assert entry(instance, "hot", "two")["target"] == "vda"
    ask(instance, "hot", "echo kept | dd of=/dev/vda conv=fsync 2>/dev/null")

    instance.wait_phase("other")
    add_volume(instance, "other", "one", "scsi")
    eventually(
        lambda: "the disk is in use" in entry(instance, "other", "one").get("message", ""),
        60,
        lambda: instance.story("other"),
    )
    put(instance, "other", "removevolume", {"name": "one"})
    in_phase(instance, "other", "one", "")

    film = {"name": "cd", "persistentVolumeClaim": {"claimName": "film", "hotpluggable": True}}
    set_medium(instance, "hot", film)
    in_phase(instance, "hot", "cd", "Ready")
    assert "size=4096" in ask(instance, "hot", "cat /dev/sr0 >/dev/null; echo size=$(cat /sys/block/sr0/size)")
    set_medium(instance, "hot")
    in_phase(instance, "hot", "cd", "")

    instance.kill(*(name for name in instance.processes() if name.startswith(("agent", "driver"))))
    put(instance, "hot", "removevolume", {"name": "one"})
    in_phase(instance, "hot", "one", "")
    assert disks_of(instance, "hot") == {"two"}

    before, identity = uid_of(instance), ask(instance, "hot", IDENTITY)
    assert "disk two /sys/devices/pci" in identity
    instance.cli("restart", "hot")
    eventually(lambda: uid_of(instance) not in ("", before) and instance.phase("hot") == "Running", 120)
    in_phase(instance, "hot", "two", "Ready")
    volume = (instance.get("pvc", "two") or {})["spec"]["volumeName"]
    assert (instance.data_dir / "volumes" / volume / "disk.img").read_bytes()[:4] == b"kept"
    booted(instance, "hot")
    assert ask(instance, "hot", IDENTITY) == identity


def server_problem() -> str:
    """Why no directory can be shared here."""
    return asyncio.run(fileserver.find())[1]


def shared_files(instance: Instance, vm: str, command: str) -> str:
    """What a command prints with all file systems of the VM mounted below /m."""
    found = instance.get("vm", vm)
    assert found is not None
    tags = [each["name"] for each in found["spec"]["template"]["spec"]["domain"]["devices"]["filesystems"]]
    mounts = "; ".join(f"mkdir -p /m/{tag}; mount -t virtiofs {tag} /m/{tag} 2>/dev/null" for tag in tags)
    return ask(instance, vm, f"{mounts}; {command}")


def servers_of(directory: Path) -> list[str]:
    """The processes that still have the directory for their root."""
    found: list[str] = []
    for root in Path("/proc").glob("[0-9]*/root"):
        with contextlib.suppress(OSError):
            if os.path.samestat(root.stat(), directory.stat()):
                found.append(str(root))
    return found


def restarted(instance: Instance, vm: str, before: str) -> bool:
    """Whether the VM runs as another VMI than `before`."""
    found = instance.get("vmi", vm)
    return found is not None and found["metadata"]["uid"] != before and instance.phase(vm) == "Running"


def grow_memory(instance: Instance, vm: str) -> None:
    """Memory comes while the guest runs; more than there is room for, and less than it began with, need a restart."""

    def ask_for(size: str) -> None:
        patch = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": size}}}}}}
        instance.kubectl("patch", "vm", vm, "--type=merge", "-p", json.dumps(patch))

    def restart_required() -> bool:
        conditions = (instance.get("vm", vm) or {})["status"].get("conditions", [])
        return any(each["type"] == "RestartRequired" for each in conditions)

    def current() -> str:
        return (instance.get("vmi", vm) or {})["status"]["memory"]["guestCurrent"]

    def total() -> int:
        """Of the guest, in KiB."""
        return int(ask(instance, vm, "sed -n 's/MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo"))

    before = total()
    ask_for("1280Mi")
    eventually(lambda: current() == "1280Mi", 120, lambda: instance.story(vm))
    eventually(lambda: total() - before == 256 << 10, 60, lambda: instance.story(vm))
    assert not restart_required()
    ask_for("512Mi")
    eventually(restart_required, 60, lambda: instance.story(vm))
    ask_for("1280Mi")
    eventually(lambda: not restart_required(), 60, lambda: instance.story(vm))


WRITE_SHARES = (
    "cat /m/live/app.conf /m/shown/key; echo; echo kept >/m/files/note; chmod 640 /m/files/note; sync; "
    "ln -sf /etc/passwd /m/files/out; ls -ln /m/files/note; echo no >/m/live/app.conf; cat /m/live/app.conf; echo; "
    "ls -1 /m/files/../files"
)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone shares directories")
def test_directories_are_shared_with_the_guest(instance: Instance) -> None:
    if problem := server_problem():
        pytest.skip(f"needs: a server for shared directories ({problem})")
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "live"}, "data": {"app.conf": "answer=42"}}
    instance.apply(config)
    instance.apply(secret("shown", key="s3cret"))
    instance.apply(claim("files"))
    vm = linux_vm("share")
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["memory"]["guest"] = "1Gi"
    spec["volumes"] = [
        {"name": "files", "persistentVolumeClaim": {"claimName": "files"}},
        {"name": "live", "configMap": {"name": "live"}},
        {"name": "shown", "secret": {"secretName": "shown"}},
    ]
    spec["domain"]["devices"]["filesystems"] = [{"name": each["name"], "virtiofs": {}} for each in spec["volumes"]]
    instance.apply(vm)
    instance.wait_phase("share")
    booted(instance, "share")
    shown = shared_files(instance, "share", WRITE_SHARES)
    assert shown.startswith("answer=42s3cret\n"), shown
    assert re.search(r"-rw-r-----\s+1 0\s+0\s+5 .*/m/files/note", shown), shown
    assert "Read-only file system" in shown
    assert re.search(r"answer=42\nnote\nout\n$", shown), shown
    place = instance.data_dir / "volumes" / (instance.get("pvc", "files") or {})["spec"]["volumeName"]
    assert (place / "note").read_text() == "kept\n"
    assert (place / "note").stat().st_uid == 0

    config["data"] = {"app.conf": "answer=43"}
    instance.apply(config)
    instance.kill(*(name for name in instance.processes() if name.startswith(("agent", "driver"))))
    eventually(
        lambda: "answer=43" in shared_files(instance, "share", "cat /m/live/app.conf"),
        90,
        lambda: instance.story("share"),
    )
    (place / "note").write_text("from the host\n")
    assert servers_of(place)
    grow_memory(instance, "share")
    before = (instance.get("vmi", "share") or {})["metadata"]["uid"]
    instance.cli("restart", "share")
    eventually(lambda: restarted(instance, "share", before), 120, lambda: instance.story("share"))
    booted(instance, "share")
    again = shared_files(instance, "share", "echo more >>/m/files/note; cat /m/files/note; sync")
    assert again == "from the host\nmore\n"
    instance.kubectl("delete", "vm", "share")
    instance.wait_gone("vmi", "share")
    assert servers_of(place) == []

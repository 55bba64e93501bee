"""Machines of the tests on a cluster: the embedded tests' manifests, and what is done with them."""

import json
import re
import time
from typing import Any

import aiohttp

from tests.cluster.cluster import DISK, LINUX, TINY, Cluster
from tests.cluster.streams import console, counter
from tests.e2e.conftest import tiny_vm

Json = dict[str, Any]
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default"
BOOT_SECONDS = 240.0
"""Emulated, on a machine that does other things too."""


def on_cluster(vm: Json) -> Json:
    """The manifest with the guests' images by the names that the node's runtime has for them."""
    return json.loads(
        json.dumps(vm).replace('"image": "tiny"', f'"image": "{TINY}"').replace('"image": "disk"', f'"image": "{DISK}"')
    )


def apply(cluster: Cluster, vm: Json) -> None:
    """kubectl apply."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(on_cluster(vm)))


def remove(cluster: Cluster, name: str) -> None:
    """Delete a VM and wait until it and its pod are gone."""
    cluster.kubectl("delete", "vm", name, "--wait=false")
    cluster.eventually(f"{name} is gone", lambda: not cluster.get("vm", name) and not cluster.launcher(name), 120, name)


def tell(cluster: Cluster, name: str, verb: str, kind: str = "virtualmachines", options: Json | None = None) -> None:
    """PUT a subresource of a VM or a VMI."""
    path = f"{SUBRESOURCES}/{kind}/{name}/{verb}"
    cluster.kubectl("replace", "--raw", path, "-f", "-", stdin=json.dumps(options or {}))


def counted(cluster: Cluster, name: str) -> int:
    """The newest counter value of the guest; -1 when its console cannot be reached now."""
    try:
        return counter(cluster.plane, name)
    except aiohttp.ClientError:
        return -1


def linux_vm(name: str, *volumes: Json, strategy: str = "Always") -> Json:
    """A VM with the Linux guest, its claims as disks."""
    vm = tiny_vm(name, strategy)
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["memory"]["guest"] = "256Mi"
    container = {"image": LINUX, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"}
    spec["domain"]["firmware"]["kernelBoot"] = {"kernelArgs": "console=ttyS0 quiet panic=-1", "container": container}
    spec["domain"]["devices"]["disks"] = [{"name": one["name"], "disk": {"bus": "virtio"}} for one in volumes]
    spec["volumes"] = list(volumes)
    return vm


def claim(name: str) -> Json:
    """A volume of a VM by a claim of the same name."""
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def ask(cluster: Cluster, name: str, command: str) -> str:
    """What a command prints on the guest's console; the echo of the typed line does not count."""
    marker = f"{time.monotonic_ns():x}"
    typed = f"touch /run/quiet; echo BEGIN''-{marker}; {command}; echo END''-{marker}\n".encode()
    found: list[str] = []

    def answered() -> bool:
        try:
            shown = console(cluster.plane, name, 5.0, typed).replace("\r", "")
        except aiohttp.ClientError:
            return False
        found[:] = re.findall(f"BEGIN-{marker}\n(.*?)END-{marker}", shown, re.DOTALL)
        return bool(found)

    cluster.eventually(f"{name} answers", answered, BOOT_SECONDS, name)
    return found[-1]


def storage(name: str, source: Json, *, block: bool = False) -> list[Json]:
    """A volume on node1, and the claim of the same name that is bound to it."""
    wanted: Json = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeMode": "Block" if block else "Filesystem",
    }
    size = {"storage": "64Mi"}
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]}
    held = {
        **wanted,
        **source,
        "capacity": size,
        "claimRef": {"namespace": "default", "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    asked = {**wanted, "volumeName": name, "resources": {"requests": size}}
    metadata = {"name": name, "namespace": "default"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": held},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": asked},
    ]


def host_path(cluster: Cluster, name: str) -> list[Json]:
    """Storage in a folder of the node."""
    place = cluster.nodes[0].place / f"volume-{name}"
    place.mkdir()
    return storage(name, {"hostPath": {"path": str(place)}})


def head_of_disk(cluster: Cluster, name: str, count: int) -> bytes:
    """The first bytes of the disk in such a folder."""
    with (cluster.nodes[0].place / f"volume-{name}" / "disk.img").open("rb") as disk:
        return disk.read(count)

"""What a guest keeps and offers on a cluster: a claim's disk over restarts, a port behind a Service."""

import json
import re
import time
import urllib.error
import urllib.request
from typing import Any

import aiohttp

from tests.cluster.cluster import LINUX, Cluster
from tests.cluster.streams import console
from tests.e2e.conftest import tiny_vm

Json = dict[str, Any]
SUBRESOURCES = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines"
BOOT_SECONDS = 240.0
"""Emulated, on a machine that does other things too."""


def linux_vm(name: str, *volumes: Json) -> Json:
    vm = tiny_vm(name)
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["memory"]["guest"] = "128Mi"
    container = {"image": LINUX, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"}
    spec["domain"]["firmware"]["kernelBoot"] = {"kernelArgs": "console=ttyS0 quiet panic=-1", "container": container}
    spec["domain"]["devices"]["disks"] = [{"name": one["name"], "disk": {"bus": "virtio"}} for one in volumes]
    spec["volumes"] = list(volumes)
    return vm


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


def volume(cluster: Cluster, name: str) -> list[Json]:
    """A volume on the node's disk, and the claim that is bound to it."""
    place = cluster.nodes[0].place / f"volume-{name}"
    place.mkdir()
    size = {"storage": "64Mi"}
    metadata = {"name": name}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": name,
        "resources": {"requests": size},
    }
    held = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "hostPath": {"path": str(place)},
        "claimRef": {"namespace": "default", "name": name},
    }
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": held},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {**metadata, "namespace": "default"},
            "spec": spec,
        },
    ]


def test_a_claim_keeps_what_a_guest_wrote_and_a_service_reaches_it(cluster: Cluster) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "keeper"}, "ports": [{"port": 80, "targetPort": 80}]},
    }
    cluster.plane.apply(*volume(cluster, "kept"), service)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "kept"}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(linux_vm("keeper", claim)))
    cluster.wait_phase("keeper", seconds=180)
    written = ask(
        cluster, "keeper", "printf kept | dd of=/dev/vda conv=fsync 2>/dev/null; echo size=$(cat /sys/block/vda/size)"
    )
    assert f"size={64 << 11}" in written

    address = cluster.get("service", "web")["spec"]["clusterIP"]
    cluster.eventually("the service answers", lambda: "hello from" in fetched(address), 60, "keeper")

    before = cluster.get("vmi", "keeper")["metadata"]["uid"]
    cluster.kubectl("replace", "--raw", f"{SUBRESOURCES}/keeper/restart", "-f", "-", stdin="{}")

    def another() -> bool:
        return cluster.get("vmi", "keeper").get("metadata", {}).get("uid", before) != before

    cluster.eventually("the machine is another", another, 120, "keeper")
    cluster.wait_phase("keeper", seconds=180)
    assert "kept" in ask(cluster, "keeper", "head -c 4 /dev/vda; echo")
    cluster.kubectl("delete", "vm", "keeper", "--wait=false")
    cluster.eventually("the VM is gone", lambda: not cluster.get("vm", "keeper"), 120, "keeper")
    with (cluster.nodes[0].place / "volume-kept" / "disk.img").open("rb") as disk:
        assert disk.read(4) == b"kept"
    cluster.kubectl("delete", "service/web", "pvc/kept", "pv/kept", "--wait=false")


def fetched(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=5) as answer:
            return answer.read().decode()
    except (OSError, urllib.error.URLError):
        return ""

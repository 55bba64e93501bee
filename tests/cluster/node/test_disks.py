"""What a guest keeps and offers on a cluster: claims' disks, a port behind a Service, probes by its own agent."""

import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.kit.control_plane import HOST_IP
from tests.cluster.node.machines import (
    BOOT_SECONDS,
    apply,
    ask,
    claim,
    head_of_disk,
    host_path,
    linux_vm,
    remove,
    storage,
    tell,
)

Json = dict[str, Any]
PATIENT = {"periodSeconds": 3, "timeoutSeconds": 10, "failureThreshold": 60}


def condition(cluster: Cluster, name: str, kind: str) -> str:
    """The status of one condition of a VMI."""
    found = cluster.get("vmi", name).get("status", {}).get("conditions", [])
    return next((one["status"] for one in found if one["type"] == kind), "")


def test_a_claim_keeps_what_a_guest_wrote_and_a_service_reaches_it(cluster: Cluster) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "keeper"}, "ports": [{"port": 80, "targetPort": 80}]},
    }
    cluster.plane.apply(*host_path(cluster, "kept"), service)
    vm = linux_vm("keeper", claim("kept"))
    spec = vm["spec"]["template"]["spec"]
    spec["readinessProbe"] = {"httpGet": {"port": 80, "path": "/index.html"}, **PATIENT}
    spec["livenessProbe"] = {"tcpSocket": {"port": 80}, **PATIENT}
    apply(cluster, vm)
    cluster.wait_phase("keeper", seconds=180)
    write = "printf kept | dd of=/dev/vda conv=fsync 2>/dev/null; echo size=$(cat /sys/block/vda/size)"
    assert f"size={64 << 11}" in ask(cluster, "keeper", write)
    cluster.eventually("it is ready", lambda: condition(cluster, "keeper", "Ready") == "True", 90, "keeper")

    address = cluster.get("service", "web")["spec"]["clusterIP"]
    cluster.eventually("the service answers", lambda: "hello from" in fetched(address), 60, "keeper")

    reached_by_the_pods_address_alone(cluster, "keeper")
    before = cluster.uid("keeper")
    tell(cluster, "keeper", "restart")
    cluster.eventually("the machine is another", lambda: cluster.uid("keeper") not in ("", before), 120, "keeper")
    cluster.wait_phase("keeper", seconds=180)
    assert "kept" in ask(cluster, "keeper", "head -c 4 /dev/vda; echo")
    remove(cluster, "keeper")
    assert head_of_disk(cluster, "kept", 4) == b"kept"
    cluster.kubectl("delete", "service/web", "pvc/kept", "pv/kept", "--wait=false")


def reached_by_the_pods_address_alone(cluster: Cluster, name: str) -> None:
    """What a guest sends leaves its node from its pod's address, and what comes in there reaches it.

    So network policies, which network plugins enforce by pods' addresses and interfaces, hold for guests.
    """
    address = cluster.launcher(name)["status"]["podIP"]
    assert "hello from" in fetched(address)
    with socket.create_server((HOST_IP, 0)) as listener, ThreadPoolExecutor(1) as beside:
        listener.settimeout(BOOT_SECONDS)
        taken = beside.submit(caller, listener)
        ask(cluster, name, f"echo out | nc -w 5 {HOST_IP} {listener.getsockname()[1]}")
        peer = taken.result()
    assert peer == address


def caller(listener: socket.socket) -> str:
    """The address of who connects; it is closed at once, which is what the caller waits for."""
    connection, (address, _) = listener.accept()
    connection.close()
    return address


@pytest.fixture
def device(cluster: Cluster) -> Iterator[str]:
    """A block device of the node."""
    file = cluster.nodes[0].place / "device.img"
    with file.open("wb") as made:
        made.truncate(64 << 20)
    name = subprocess.run(["losetup", "-f", "--show", file], capture_output=True, text=True, check=True).stdout.strip()
    yield name
    subprocess.run(["losetup", "-d", name], check=True)


def test_disks_on_devices_and_in_folders_of_the_pods_group_and_a_tpm(cluster: Cluster, device: str) -> None:
    folder = cluster.nodes[0].place / "local"
    folder.mkdir(mode=0o750)
    cluster.plane.apply(
        *storage("device", {"local": {"path": device}}, block=True),
        *storage("folder", {"local": {"path": str(folder)}}),
    )
    vm = linux_vm("full", claim("device"), claim("folder"))
    spec = vm["spec"]["template"]["spec"]
    spec["domain"]["devices"]["tpm"] = {}
    spec["readinessProbe"] = {"exec": {"command": ["/bin/sh", "-c", "test -e /run/up"]}, **PATIENT}
    spec["livenessProbe"] = {"guestAgentPing": {}, **PATIENT}
    apply(cluster, vm)
    cluster.wait_phase("full", seconds=180)
    seen = ask(
        cluster,
        "full",
        "printf onto | dd of=/dev/vda conv=fsync 2>/dev/null; ls /sys/class/tpm; cat /sys/block/vd?/size",
    )
    assert seen.split() == ["tpm0", str(64 << 11), str(64 << 11)]
    with Path(device).open("rb") as disk:
        assert disk.read(4) == b"onto"
    assert folder.stat().st_gid == cluster.launcher("full")["spec"]["securityContext"]["fsGroup"]

    assert condition(cluster, "full", "Ready") == "False"
    cluster.eventually(
        "the probe fails", lambda: "Readiness probe failed" in cluster.kubectl("get", "events"), 60, "full"
    )
    ask(cluster, "full", "touch /run/up")
    cluster.eventually("it is ready", lambda: condition(cluster, "full", "Ready") == "True", 90, "full")
    plug(cluster, "full")
    assert cluster.phase("full") == "Running"
    remove(cluster, "full")
    cluster.kubectl("delete", "pvc/device", "pvc/folder", "pv/device", "pv/folder", "--wait=false")


def plug(cluster: Cluster, name: str) -> None:
    """A disk comes while the guest runs, is written, and goes."""
    cluster.plane.apply(*host_path(cluster, "late"))
    source = {"persistentVolumeClaim": {"claimName": "late"}}
    options = {"name": "late", "disk": {"name": "late", "disk": {"bus": "virtio"}}, "volumeSource": source}
    tell(cluster, name, "addvolume", options=options)
    cluster.eventually("the guest has the disk", lambda: late(cluster, name) == "Ready", 120, name)
    assert "came" in ask(cluster, name, "printf came | dd of=/dev/vdc conv=fsync 2>/dev/null; head -c 4 /dev/vdc; echo")
    assert head_of_disk(cluster, "late", 4) == b"came"
    tell(cluster, name, "removevolume", options={"name": "late"})
    cluster.eventually("the disk is gone", lambda: late(cluster, name) == "", 120, name)
    cluster.kubectl("delete", "pvc/late", "pv/late", "--wait=false")


def late(cluster: Cluster, name: str) -> str:
    """The phase of the volume that comes late; empty when there is none."""
    found = cluster.get("vmi", name).get("status", {}).get("volumeStatus", [])
    return next((one.get("phase", "") for one in found if one["name"] == "late"), "")


def fetched(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}/", timeout=5) as answer:
            return answer.read().decode()
    except (OSError, urllib.error.URLError):
        return ""

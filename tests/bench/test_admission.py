"""What a decision costs: defaults and rules of a typical and of a large VMI, against copying the object as JSON."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.dispatch import admit
from anyvisor.admission.result import CREATE, AdmissionRequest

AIM_MS = {"typical": 0.3, "large": 3.0}
# A decision may cost this many times a decode and encode by the standard library; several times what it does.
LIMIT = 25
_ROUNDS = 40


def vmi(disks: int, interfaces: int) -> dict[str, Any]:
    """A VMI as an installer of a Linux server writes it, with this many disks and interfaces."""
    networks = [{"name": f"n{i}", "multus": {"networkName": f"lan-{i}"}} for i in range(interfaces - 1)]
    cloud_init = "#cloud-config\nusers:\n- name: admin\n  ssh_authorized_keys:\n" + "  - ssh-ed25519 AAAA\n" * 12
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": "server",
            "namespace": "default",
            "labels": {f"example.com/label-{i}": f"value-{i}" for i in range(12)},
            "annotations": {f"example.com/note-{i}": "some words of an operator " * 3 for i in range(12)},
        },
        "spec": {
            "evictionStrategy": "LiveMigrate",
            "terminationGracePeriodSeconds": 180,
            "tolerations": [{"key": "example.com/vms", "operator": "Exists", "effect": "NoSchedule"}],
            "readinessProbe": {"tcpSocket": {"port": 22}, "initialDelaySeconds": 30},
            "domain": {
                "cpu": {"sockets": 1, "cores": 4, "threads": 1, "model": "host-model"},
                "memory": {"guest": "8Gi"},
                "resources": {"requests": {"memory": "8Gi", "cpu": "2"}},
                "clock": {"utc": {}, "timer": {"hpet": {"present": False}, "rtc": {"tickPolicy": "catchup"}}},
                "features": {"acpi": {}, "smm": {}},
                "firmware": {"bootloader": {"efi": {"secureBoot": True}}},
                "devices": {
                    "rng": {},
                    "disks": [
                        {"name": f"disk-{i}", "bootOrder": i + 1, "serial": f"S{i:05}", "disk": {"bus": "virtio"}}
                        for i in range(disks)
                    ]
                    + [{"name": "cloud-init", "disk": {"bus": "virtio"}}],
                    "interfaces": [
                        {"name": f"n{i}", "bridge": {}, "macAddress": f"02:00:00:00:00:{i:02x}", "model": "virtio"}
                        for i in range(interfaces)
                    ],
                },
            },
            "networks": [*networks, {"name": f"n{interfaces - 1}", "pod": {}}],
            "volumes": [
                {"name": f"disk-{i}", "persistentVolumeClaim": {"claimName": f"claim-of-disk-{i}"}}
                for i in range(disks)
            ]
            + [{"name": "cloud-init", "cloudInitNoCloud": {"userData": cloud_init}}],
        },
    }


def cost(work: Callable[[], object], repeats: int) -> float:
    """Seconds of CPU time of one call, the least of several rounds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.process_time()
        for _ in range(repeats):
            work()
        best = min(best, (time.process_time() - start) / repeats)
    return best


@pytest.mark.parametrize(("size", "disks", "interfaces"), [("typical", 6, 2), ("large", 230, 60)])
def test_a_decision(size: str, disks: int, interfaces: int) -> None:
    obj = vmi(disks, interfaces)
    request = AdmissionRequest(CREATE, "VirtualMachineInstance", obj, lambda: "6a1c9f4e", "2026-06-01T00:00:00Z")
    config = ClusterConfig.of()
    assert admit(request, config).allowed
    text = json.dumps(obj)
    repeats = 20 if size == "typical" else 2
    ours = cost(lambda: admit(request, config), repeats)
    copying = cost(lambda: json.dumps(json.loads(text)), repeats)
    print(
        f"\n{size} VMI of {len(text) / 1024:.1f} KiB: decided in {ours * 1e3:.3f} ms of CPU "
        f"(aim {AIM_MS[size]} ms), {ours / copying:.1f} times a JSON copy ({copying * 1e3:.3f} ms)"
    )
    assert ours < LIMIT * copying

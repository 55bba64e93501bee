"""Manifests to plan with."""

from typing import Any

from anyvisor.planning.manifest import digest, parse
from anyvisor.planning.planner import Driver
from anyvisor.planning.registry import registry

BASE: dict[str, Any] = {
    "accel.kvm": {},
    "arch": {"values": ["amd64", "arm64"]},
    "boot.bios": {},
    "cpu.count": {"max": 16},
    "memory.size": {"max": 1 << 40},
    "disk.count": {"max": 8},
    "disk.bus": {"values": ["virtio", "scsi"]},
    "disk.format": {"values": ["raw", "qcow2"]},
    "nic.count": {"max": 4},
    "nic.model": {"values": ["virtio"]},
    "nic.tap": {},
    "console.serial": {},
    "memory.balloon": {},
    "lifecycle.shutdown": {},
    "machine.profile": {"values": ["q35", "pc-q35-*"]},
}


def manifest(capabilities: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A manifest's data: the base capabilities and those given (None as statement = not stated)."""
    stated: dict[str, Any] = {**BASE, **(capabilities or {})}
    return {
        "apiVersion": "hri.anyvisor.io/v1",
        "driver": "test.example.org",
        "version": "1.2.3",
        "title": "Test",
        "hri": {"minMinor": 1, "maxMinor": 1},
        "vmm": {"name": "test"},
        "launchMode": "exec",
        "architectures": ["amd64", "arm64"],
        "accelerators": ["kvm", "emulation"],
        "capabilities": {name: {"state": True, **says} for name, says in stated.items() if says is not None},
        "overhead": {"fixed": "50Mi", "guestMemoryRatio": "1/512", "perVcpu": "8Mi"},
        "pod": {"image": "example.org/test:1", "images": {"arm64": "example.org/test-arm:1"}},
        **more,
    }


def driver(capabilities: dict[str, Any] | None = None, **more: Any) -> Driver:
    """An installed driver."""
    raw = manifest(capabilities, **more)
    return Driver(parse(raw, registry()), digest(raw))


def hypervisor_class(**spec: Any) -> dict[str, Any]:
    """A HypervisorClass object."""
    return {"metadata": {"name": "std"}, "spec": {"driver": "test.example.org", **spec}}


def small(**domain: Any) -> dict[str, Any]:
    """A spec that the base capabilities satisfy."""
    return {
        "architecture": "amd64",
        "domain": {
            "cpu": {"sockets": 1, "cores": 1, "threads": 1},
            "memory": {"guest": "1Gi"},
            "machine": {"type": "q35"},
            "devices": {
                "autoattachGraphicsDevice": False,
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio"}],
            },
            **domain,
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "root", "containerDisk": {"image": "x"}}],
    }

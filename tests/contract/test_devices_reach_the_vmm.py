"""No field of a machine is dropped on its way: each leaf is refused by name, told, or shows in QEMU's arguments.

The way is that of a real machine: plan, substitutions, the agent's translation, the driver's.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest

from anyvisor.agent import translate as agent
from anyvisor.agent.volumes.shares import Share
from anyvisor.api.kubevirt.vmi_spec import VirtualMachineInstanceSpec
from anyvisor.api.schema import object_schema
from anyvisor.drivers.qemu import manifest
from anyvisor.drivers.qemu.translate import Host, translate
from anyvisor.drivers.qemu.translate.host import FileServer, Firmware
from anyvisor.hri.v1.machine_spec_pb2 import Kernel, Nic, UserBackend, VolumeHandle
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM
from anyvisor.planning import manifest as planning_manifest
from anyvisor.planning import predicates
from anyvisor.planning.plan import Plan
from anyvisor.planning.planner import Driver, plan
from anyvisor.planning.registry import registry
from tests.unit.qemu.test_translate import KVM_HOST

REGISTRY: Final = registry()
HOST: Final[Host] = replace(
    KVM_HOST,
    tpm="/usr/bin/swtpm",
    file_server=FileServer("/usr/lib/qemu/virtiofsd"),
    uefi=Firmware("/CODE.fd", b"plain"),
    uefi_secure=Firmware("/SECURE.fd", b"keys"),
    huge_page_bytes=frozenset({2 << 20}),
    cpu_features={ACCELERATOR_KVM: frozenset({"aes"})},
    displays=frozenset({"VGA", "virtio-vga", "bochs-display"}),
)
QEMU: Final = Driver(
    planning_manifest.parse(manifest.read().data, REGISTRY), planning_manifest.digest(manifest.read().data)
)
CLASS: Final = {
    "metadata": {"name": "qemu"},
    "spec": {"driver": manifest.DRIVER, "policy": {"allowExperimental": True}},
}
LAYER: Final = VolumeHandle.Layer(handle="a", format=VolumeHandle.Layer.FORMAT_RAW, direct=True)
NIC: Final = Nic(id="default", mac="02:00:00:00:00:01", user=UserBackend(network="10.0.2.0/24"))

VALUES: Final[dict[str, list[Any]]] = {
    "domain.clock.timezone": ["Europe/Berlin"],
    "domain.clock.timer.hpet.tickPolicy": ["catchup"],
    "domain.clock.timer.pit.tickPolicy": ["discard"],
    "domain.clock.timer.rtc.tickPolicy": ["catchup"],
    "domain.clock.timer.rtc.track": ["guest"],
    "domain.cpu.features[*].name": ["aes"],
    "domain.cpu.features[*].policy": ["disable"],
    "domain.cpu.model": ["EPYC"],
    "domain.devices.disks[*].blockSize.custom.discardGranularity": [4096],
    "domain.devices.disks[*].blockSize.custom.logical": [4096],
    "domain.devices.disks[*].blockSize.custom.physical": [4096],
    "domain.devices.disks[*].cache": ["writeback"],
    "domain.devices.disks[*].cdrom.bus": ["scsi"],
    "domain.devices.disks[*].disk.bus": ["usb"],
    "domain.devices.disks[*].disk.pciAddress": ["0000:05:00.0"],
    "domain.devices.disks[*].errorPolicy": ["report"],
    "domain.devices.disks[*].io": ["native"],
    "domain.devices.inputs[*].bus": ["virtio"],
    "domain.devices.inputs[*].type": ["tablet"],
    "domain.devices.panicDevices[*].model": ["pvpanic"],
    "domain.devices.rng": [{}],
    "domain.devices.sound.model": ["ac97"],
    "domain.devices.video.type": ["virtio"],
    "domain.devices.watchdog.i6300esb.action": ["poweroff"],
    "domain.features.hyperv.spinlocks.spinlocks": [4096],
    "domain.features.hyperv.vendorid.vendorid": ["someone"],
    "domain.firmware.uuid": ["5d307ca9-b3ef-428c-8861-06e72d69f223"],
    "domain.ioThreadsPolicy": ["shared"],
    "domain.ioThreads.supplementalPoolThreadCount": [2],
    "domain.machine.type": ["pc-q35-7.1"],
    "domain.devices.filesystems[*].name": ["a"],
    "domain.memory.guest": ["2Gi"],
    "domain.memory.maxGuest": ["4Gi"],
    "domain.memory.hugepages.pageSize": ["2Mi"],
    "domain.rebootPolicy": ["Terminate"],
}
"""What a field may hold, where any word would not do."""
BESIDE: Final[dict[str, dict[str, Any]]] = {
    "domain.cpu.features": {"name": "aes"},
    "domain.devices.disks": {"name": "a"},
    "domain.devices.filesystems": {"name": "a"},
    "domain.devices.inputs": {"name": "a", "type": "tablet"},
    "domain.devices.panicDevices": {},
    "domain.devices.sound": {"name": "a"},
    "domain.devices.watchdog": {"name": "a"},
}
"""What belongs to any element, or to the object, of which one field is tried."""
NAMES: Final = {
    "domain.devices.disks[*].cdrom.readonly": "a CD-ROM is read-only, whatever it says",
    "domain.devices.inputs[*].name": "the agent's own",
    "domain.devices.interfaces[*].model": "the agent's network gives it, see tests/unit/agent_network",
    "domain.devices.interfaces[*].macAddress": "the agent's network gives it",
    "domain.devices.interfaces[*].pciAddress": "the agent's network gives it",
    "domain.devices.interfaces[*].acpiIndex": "the agent's network gives it",
    "domain.devices.interfaces[*].bootOrder": "one device's place alone is no order",
    "domain.devices.interfaces[*].state": "the agent's network gives it",
    "domain.devices.networkInterfaceMultiqueue": "the agent's network opens so many queues",
    "domain.devices.sound.name": "the agent's own",
    "domain.devices.watchdog.name": "the agent's own",
    "domain.devices.logSerialConsole": "the agent decides what of the console is logged",
    "domain.devices.autoattachInputDevice": "a default of the API adds the device itself",
    "domain.ioThreads.supplementalPoolThreadCount": "counts with ioThreadsPolicy: supplementalPool only",
    "domain.firmware.bootloader.bios": "the default",
    "domain.firmware.kernelBoot.container.kernelPath": "the agent opens it",
    "domain.firmware.kernelBoot.container.initrdPath": "the agent opens it",
    "domain.firmware.kernelBoot.kernelArgs": "the agent opens it",
    "domain.devices.watchdog.diag288.action": "admission refuses the model on amd64",
    "domain.features.acpi.enabled": "off only where the firmware is no UEFI",
}
"""Leaves that no argument shows alone, with the reason."""


def leaves(schema: dict[str, Any], at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    inner = schema.get("properties")
    if inner:
        for name, below in inner.items():
            yield from leaves(below, f"{at}.{name}" if at else name)
    elif schema.get("type") == "array":
        yield from leaves(schema["items"], f"{at}[*]")
    else:
        yield at, schema


LEAVES: Final = dict(leaves(object_schema(VirtualMachineInstanceSpec)["properties"]["domain"], "domain"))


def is_neutral(path: str) -> bool:
    """Whether the registry says that no hypervisor acts on it."""
    return any(
        path == known or (known.endswith(".**") and path.startswith(known.removesuffix(".**")))
        for known in REGISTRY.neutral
    )


def base() -> dict[str, Any]:
    devices: dict[str, Any] = {
        "disks": [{"name": "a", "disk": {"bus": "virtio"}}],
        "interfaces": [{"name": "default", "masquerade": {}}],
    }
    return {
        "domain": {"memory": {"guest": "1Gi"}, "cpu": {"sockets": 1}, "devices": devices},
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [{"name": "a", "emptyDisk": {"capacity": "1Mi"}}],
    }


def with_leaf(path: str, value: Any) -> dict[str, Any]:
    spec = base()
    steps = predicates.steps(path)
    place: dict[str, Any] = spec
    at = ""
    for number, (name, each) in enumerate(steps):
        at = f"{at}.{name}" if at else name
        last = number == len(steps) - 1
        if each:
            members = place.setdefault(name, [])
            if last:
                members.append(value)
                return spec
            if not members:
                members.append(copy.deepcopy(BESIDE.get(at, {"name": "x"})))
            place = members[0]
            at += "[*]"
        elif last:
            place[name] = value
        else:
            place = place.setdefault(name, copy.deepcopy(BESIDE.get(at, {})))
    disk = spec["domain"]["devices"]["disks"][0]
    if "cdrom" in disk or "lun" in disk:
        disk.pop("disk")
    return spec


def candidates(path: str, schema: dict[str, Any]) -> list[Any]:
    if path in VALUES:
        return VALUES[path]
    match schema.get("type"):
        case "boolean":
            return [True, False]
        case "integer" | "number":
            return [3]
        case "object":
            return [{}]
        case _:
            return ["value"]


def planned(spec: dict[str, Any]) -> Plan:
    return plan(spec, CLASS, QEMU)


def arguments(spec: dict[str, Any], made: Plan) -> list[str]:
    metadata = {"name": "m", "namespace": "ns", "uid": "5f1c2d3e-0000-4000-8000-000000000000"}
    vmi = {"metadata": metadata, "spec": spec, "status": {"VSOCKCID": 3}}
    kernel = Kernel(kernel_handle="k") if spec["domain"].get("firmware", {}).get("kernelBoot") else None
    shares = (
        {"a": Share("directory", "namespace", read_only=False)} if "filesystems" in spec["domain"]["devices"] else {}
    )
    parts = agent.Parts({"a": VolumeHandle(layers=[LAYER], size_bytes=512)}, kernel, [NIC], "log", shares=shares)
    machine = agent.machine(vmi, made, parts)
    result = translate(machine, HOST)
    warned = [finding.message for finding in result.findings if finding.severity == "warn"]
    return [*result.launch.argv, *result.launch.env, *warned, str(machine.lifecycle), str(machine.boot.order)]


BASE: Final = arguments(base(), planned(base()))


def related(field: str, path: str) -> bool:
    """Whether a finding's field names the leaf, something above it, or something below it."""
    plain = field.removeprefix("spec.").replace("[0]", "[*]").replace("[1]", "[*]")
    return plain.startswith(path) or path.startswith(plain)


@pytest.mark.parametrize("path", [path for path in LEAVES if not is_neutral(path) and path not in NAMES])
def test_it_is_refused_told_or_arrives(path: str) -> None:
    outcomes: list[str] = []
    for value in candidates(path, LEAVES[path]):
        spec = with_leaf(path, value)
        made = planned(spec)
        told = [finding for finding in made.findings if related(finding.field, path)]
        if made.verdict == "REFUSED":
            errors = [finding for finding in told if finding.severity == "error"]
            assert errors, [f"{finding.field}: {finding.message}" for finding in made.findings]
            assert all(finding.message for finding in errors)
            assert any(finding.remedies for finding in errors)
            outcomes.append("refused")
        elif any(finding.severity == "warn" for finding in told):
            outcomes.append("told")
        elif arguments(spec, made) != BASE:
            outcomes.append("arrives")
    assert outcomes, "it is taken and nothing comes of it"

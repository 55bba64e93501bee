"""From `Machine` to VmConfig: whole examples as files, and every refusal by its field.

`ANYVISOR_UPDATE_GOLDEN=1` writes the files anew.
"""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st

from anyvisor.drivers.cloud_hypervisor.rest import MAX_REQUEST_BODY
from anyvisor.drivers.cloud_hypervisor.translate import Host, slots, translate
from anyvisor.hri.errors import InvalidRequest, Refused
from anyvisor.hri.v1.machine_spec_pb2 import (
    Clock,
    Console,
    Device,
    Disk,
    Firmware,
    Lifecycle,
    Machine,
    Nic,
    TapBackend,
    UserBackend,
    VolumeHandle,
)
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM

GOLDEN = Path(__file__).parent / "golden"
HOST = Host(firmware="/usr/share/cloud-hypervisor/CLOUDHV.fd")
GIB = 1 << 30


def smallest() -> Machine:
    machine = Machine(id="m1", name="default/vm")
    machine.cpu.sockets = machine.cpu.cores = machine.cpu.threads = 1
    machine.memory.size_bytes = 64 << 20
    machine.boot.kernel.kernel_handle = "kernel"
    return machine


def volume(handle: str, image: VolumeHandle.Layer.Format, *, direct: bool = False) -> VolumeHandle:
    return VolumeHandle(layers=[VolumeHandle.Layer(handle=handle, format=image, direct=direct)], size_bytes=GIB)


def raw(device_id: str, **fields: Any) -> Disk:
    handle = f"volume/{device_id}"
    return Disk(id=device_id, bus=Disk.BUS_VIRTIO, volume=volume(handle, VolumeHandle.Layer.FORMAT_RAW), **fields)


def server() -> Machine:
    """UEFI, three disks, two NICs, everything that can be said."""
    machine = smallest()
    machine.accelerator = ACCELERATOR_KVM
    machine.cpu.sockets, machine.cpu.cores, machine.cpu.threads, machine.cpu.max_sockets = 2, 2, 2, 4
    machine.cpu.model = "host-passthrough"
    machine.memory.size_bytes, machine.memory.max_bytes = 2 * GIB, 4 * GIB
    machine.memory.page_bytes, machine.memory.shared = 2 << 20, True
    machine.boot.firmware.kind = Firmware.KIND_UEFI
    machine.disks.extend(
        [
            raw("disk.root", queues=8, serial="root-1", dedicated_io_thread=True),
            Disk(
                id="disk.data",
                kind=Disk.KIND_DISK,
                volume=volume("volume/data", VolumeHandle.Layer.FORMAT_QCOW2, direct=True),
                cache=Disk.CACHE_NONE,
                on_error=Disk.ON_ERROR_REPORT,
                pci_address="0000:00:1E.0",
            ),
            raw("disk.seed", read_only=True, cache=Disk.CACHE_WRITEBACK),
        ]
    )
    machine.nics.extend(
        [
            Nic(id="nic.a", model=Nic.MODEL_VIRTIO, mac="02:00:00:00:00:0A", mtu=1450, tap=TapBackend(handles=["a0"])),
            Nic(
                id="nic.b",
                mac="02:00:00:00:00:0b",
                tap=TapBackend(handles=["b0", "b1"], vhost_handles=["v0", "v1"]),
                pci_address="0000:00:10.0",
            ),
        ]
    )
    machine.consoles.add(id="serial0", kind=Console.KIND_SERIAL, log_handle="console/log")
    machine.devices.add(id="balloon.0").balloon.statistics_seconds = 10
    machine.devices.add(id="rng.0").rng.SetInParent()
    machine.devices.add(id="panic.0").panic.model = "pvpanic"
    identity = machine.identity
    identity.uuid, identity.serial = "5D307CA9-B3EF-428C-8861-06E72D69F223", "sn-1"
    identity.manufacturer, identity.product, identity.version = "KubeVirt", "None", "1.2"
    identity.sku, identity.family, identity.chassis_asset = "sku", "family", "asset-7"
    identity.oem_strings.append("io.systemd.credential:a=b")
    machine.clock.timers.extend([Clock.Timer(name="hpet", present=False), Clock.Timer(name="kvm", present=True)])
    machine.lifecycle.on_reboot, machine.lifecycle.grace_seconds = Lifecycle.ON_REBOOT_RESET, 30
    machine.features.acpi = machine.features.apic = True
    return machine


def kernel_and_initrd() -> Machine:
    machine = smallest()
    machine.boot.kernel.initrd_handle = "initrd"
    machine.boot.kernel.command_line = 'console=ttyS0 "quoted"'
    machine.consoles.add(id="serial0")
    return machine


def ephemeral() -> Machine:
    """Disks that stay as they are: an overlay on each image."""
    machine = smallest()
    for name, image in (("root", VolumeHandle.Layer.FORMAT_QCOW2), ("data", VolumeHandle.Layer.FORMAT_RAW)):
        top = VolumeHandle.Layer(handle=f"{name}/overlay", format=VolumeHandle.Layer.FORMAT_QCOW2)
        base = VolumeHandle.Layer(handle=f"{name}/base", format=image, read_only=True)
        machine.disks.add(id=name, bus=Disk.BUS_VIRTIO, volume=VolumeHandle(layers=[top, base], size_bytes=GIB))
    return machine


@pytest.mark.parametrize("make", [smallest, kernel_and_initrd, server, ephemeral])
def test_golden(make: Callable[[], Machine]) -> None:
    result = translate(make(), HOST)
    found = {
        "argv": list(result.launch.argv),
        "descriptors": {slot.number: slot.handle for slot in result.launch.descriptors},
        "reopened": [slot.number for slot in result.launch.descriptors if slot.reopened],
        "workingDirectory": result.launch.working_directory,
        "driverHandles": result.driver_handles,
        "endpoints": [MessageToDict(each) for each in result.endpoints],
        "config": result.config,
        "nics": [{"config": nic.config, "handles": nic.handles} for nic in result.nics],
        "overlays": [dataclasses.asdict(overlay) for overlay in result.overlays],
        "devices": {device.id: device.address for device in result.devices},
        "findings": [[each.severity, each.code, each.field] for each in result.findings],
    }
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    path = GOLDEN / f"{make.__name__}.json"
    if os.environ.get("ANYVISOR_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


REFUSALS: list[tuple[str, Callable[[Machine], Any]]] = [
    ("identity.chassis_serial", lambda machine: setattr(machine.identity, "chassis_serial", "c-1")),
    ("accelerator", lambda m: setattr(m, "accelerator", ACCELERATOR_EMULATION)),
    ("profile", lambda m: setattr(m, "profile", "q35")),
    ("cpu", lambda m: setattr(m.cpu, "sockets", 255)),
    ("cpu", lambda m: setattr(m.cpu, "cores", 0)),
    ("cpu.threads", lambda m: setattr(m.cpu, "threads", 4)),
    ("cpu.model", lambda m: setattr(m.cpu, "model", "host-model")),
    ("cpu.features[0]", lambda m: m.cpu.features.add(name="vmx")),
    ("cpu.dedicated[0]", lambda m: m.cpu.dedicated.append(1)),
    ("memory.size_bytes", lambda m: setattr(m.memory, "size_bytes", 0)),
    ("memory", lambda m: setattr(m.memory, "size_bytes", (64 << 20) + 1)),
    ("memory.page_bytes", lambda m: setattr(m.memory, "page_bytes", 65536)),
    ("memory.max_bytes", lambda m: setattr(m.memory, "max_bytes", 128 << 20)),
    ("memory.max_bytes", lambda m: setattr(m.memory, "max_bytes", 32 << 20)),
    ("memory.locked", lambda m: setattr(m.memory, "locked", True)),
    ("boot.firmware.kind", lambda m: setattr(m.boot.firmware, "kind", Firmware.KIND_BIOS)),
    ("boot.firmware.kind", lambda m: m.boot.ClearField("kernel")),
    (
        "boot.firmware.secure_boot",
        lambda m: m.boot.firmware.CopyFrom(Firmware(kind=Firmware.KIND_UEFI, secure_boot=True)),
    ),
    (
        "boot.firmware.variables_handle",
        lambda m: m.boot.firmware.CopyFrom(Firmware(kind=Firmware.KIND_UEFI, variables_handle="v")),
    ),
    ("boot.kernel.command_line", lambda m: setattr(m.boot.kernel, "command_line", "x" * 2048)),
    ("boot.order[0]", lambda m: m.boot.order.append("a")),
    ("disks[0].kind", lambda m: m.disks.append(raw("a", kind=Disk.KIND_CDROM))),
    ("disks[0].kind", lambda m: m.disks.append(raw("a", kind=Disk.KIND_LUN))),
    ("disks[0].bus", lambda m: m.disks.append(Disk(id="a", bus=Disk.BUS_SATA, volume=raw("a").volume))),
    ("disks[0].volume", lambda m: m.disks.append(Disk(id="a"))),
    (
        "disks[0].volume.layers",
        lambda m: m.disks.append(Disk(id="a", volume=VolumeHandle(layers=[*raw("a").volume.layers] * 3))),
    ),
    (
        "disks[0].volume.layers",
        lambda m: m.disks.append(Disk(id="a", volume=VolumeHandle(layers=[*raw("a").volume.layers] * 2))),
    ),
    (
        "disks[0].volume.layers[0].format",
        lambda m: m.disks.append(Disk(id="a", volume=volume("v", VolumeHandle.Layer.FORMAT_UNSPECIFIED))),
    ),
    (
        "disks[0].volume.vhost_user_handle",
        lambda m: m.disks.append(Disk(id="a", volume=VolumeHandle(vhost_user_handle="s"))),
    ),
    ("disks[0].cache", lambda m: m.disks.append(raw("a", cache=Disk.CACHE_NONE))),
    ("disks[0].cache", lambda m: m.disks.append(raw("a", cache=Disk.CACHE_WRITETHROUGH))),
    ("disks[0].io", lambda m: m.disks.append(raw("a", io=Disk.IO_NATIVE))),
    ("disks[0].on_error", lambda m: m.disks.append(raw("a", on_error=Disk.ON_ERROR_STOP))),
    ("disks[0].queues", lambda m: m.disks.append(raw("a", queues=2))),
    ("disks[0].serial", lambda m: m.disks.append(raw("a", serial="é" * 11))),
    ("disks[0].shareable", lambda m: m.disks.append(raw("a", shareable=True))),
    (
        "nics[0].model",
        lambda m: m.nics.append(
            Nic(id="n", mac="02:00:00:00:00:01", model=Nic.MODEL_E1000, tap=TapBackend(handles=["t"]))
        ),
    ),
    ("nics[0].mac", lambda m: m.nics.append(Nic(id="n", mac="2:0:0:0:0:1", tap=TapBackend(handles=["t"])))),
    ("nics[0].user", lambda m: m.nics.append(Nic(id="n", mac="02:00:00:00:00:01", user=UserBackend()))),
    ("nics[0]", lambda m: m.nics.append(Nic(id="n", mac="02:00:00:00:00:01"))),
    (
        "nics[0].tap.handles",
        lambda m: m.nics.append(Nic(id="n", mac="02:00:00:00:00:01", tap=TapBackend(handles=["t", "u"]))),
    ),
    (
        "nics[0].link_down",
        lambda m: m.nics.append(Nic(id="n", mac="02:00:00:00:00:01", link_down=True, tap=TapBackend(handles=["t"]))),
    ),
    ("consoles[0].kind", lambda m: m.consoles.add(id="c", kind=Console.KIND_VIRTIO)),
    ("consoles[0].closed", lambda m: m.consoles.add(id="c", closed=True)),
    ("consoles[1]", lambda m: m.consoles.extend([Console(id="c"), Console(id="d")])),
    ("displays[0]", lambda m: m.displays.add(id="d")),
    ("devices[0].tpm", lambda m: m.devices.add(id="t").tpm.SetInParent()),
    ("devices[0].watchdog", lambda m: setattr(m.devices.add(id="w").watchdog, "model", "i6300esb")),
    ("devices[0].panic.model", lambda m: setattr(m.devices.add(id="p").panic, "model", "hyperv")),
    ("devices[1]", lambda m: m.devices.extend([Device(id="a", rng={}), Device(id="b", rng={})])),
    ("filesystems[0]", lambda m: m.filesystems.add(id="f", tag="t")),
    ("identity.uuid", lambda m: setattr(m.identity, "uuid", "no-uuid")),
    ("identity", lambda m: setattr(m.identity, "product", "x" * 257)),
    ("clock.utc_offset_seconds", lambda m: setattr(m.clock, "utc_offset_seconds", 3600)),
    ("clock.timezone", lambda m: setattr(m.clock, "timezone", "Europe/Berlin")),
    ("clock.timers[0]", lambda m: m.clock.timers.add(name="hpet", present=True)),
    ("clock.timers[0]", lambda m: m.clock.timers.add(name="rtc", present=True, tick_policy="catchup")),
    ("lifecycle.start_paused", lambda m: setattr(m.lifecycle, "start_paused", True)),
    ("lifecycle.on_reboot", lambda m: setattr(m.lifecycle, "on_reboot", Lifecycle.ON_REBOOT_STOP)),
    ("features.acpi", lambda m: setattr(m.features, "acpi", False)),
    ("features.smm", lambda m: setattr(m.features, "smm", True)),
    ("features.hidden_hypervisor", lambda m: setattr(m.features, "hidden_hypervisor", True)),
    ("features.hyperv[relaxed]", lambda m: m.features.hyperv.update({"relaxed": "on"})),
]


@pytest.mark.parametrize(("field", "edit"), REFUSALS, ids=[f"{i}-{field}" for i, (field, _) in enumerate(REFUSALS)])
def test_what_cannot_be_honoured_is_refused_by_its_field(field: str, edit: Callable[[Machine], Any]) -> None:
    machine = smallest()
    edit(machine)
    with pytest.raises(Refused) as refused:
        translate(machine, HOST)
    assert [finding.field for finding in refused.value.findings] == [field]
    assert all(finding.message for finding in refused.value.findings)


def test_all_refusals_come_at_once() -> None:
    machine = smallest()
    machine.cpu.model = "host-model"
    machine.disks.extend([raw("a", kind=Disk.KIND_CDROM), raw("b", cache=Disk.CACHE_NONE)])
    machine.lifecycle.start_paused = True
    with pytest.raises(Refused) as refused:
        translate(machine, HOST)
    fields = {finding.field for finding in refused.value.findings}
    assert fields == {"cpu.model", "disks[0].kind", "disks[1].cache", "lifecycle.start_paused"}


@pytest.mark.parametrize("device_id", ["", "_root", "__x", "a" * 64, "a/b", "ä"])
def test_id_that_the_vmm_would_refuse(device_id: str) -> None:
    machine = smallest()
    machine.disks.append(raw("a"))
    machine.disks[0].id = device_id
    with pytest.raises(InvalidRequest):
        translate(machine, HOST)


def test_firmware_that_is_not_installed() -> None:
    machine = smallest()
    machine.boot.firmware.kind = Firmware.KIND_UEFI
    with pytest.raises(Refused, match="no firmware is installed"):
        translate(machine, Host())
    machine.parameters["firmware"] = "/opt/fw"
    assert translate(machine, Host()).config["payload"] == {"firmware": "/opt/fw"}


def test_kvm() -> None:
    with pytest.raises(Refused, match="cannot be opened"):
        translate(smallest(), Host(kvm_opens=False, kvm_message="/dev/kvm cannot be opened"))
    result = translate(smallest(), Host(kvm_runs=False, kvm_message="a guest would die"))
    assert [(each.severity, each.message) for each in result.findings] == [("warn", "a guest would die")]


def test_no_path_of_the_host_but_programs() -> None:
    result = translate(server(), HOST)
    words = json.dumps([result.config, [nic.config for nic in result.nics], list(result.launch.argv)[1:]])
    paths = {word for word in words.split('"') if word.startswith("/")}
    assert {path for path in paths if not path.startswith("/proc/self/fd/")} == {HOST.firmware, "/dev/urandom"}


def test_largest_machine_can_be_told() -> None:
    machine = smallest()
    machine.disks.extend(raw(f"{index}".rjust(63, "d")) for index in range(slots.COUNT))
    assert len(json.dumps(translate(machine, HOST).config)) < MAX_REQUEST_BODY
    machine.disks.append(raw("one-more"))
    with pytest.raises(Refused, match="all 27 PCI slots are taken"):
        translate(machine, HOST)


@settings(deadline=None)
@given(st.lists(st.one_of(st.just(""), st.integers(slots.FIRST, slots.LAST).map(slots.address)), max_size=slots.COUNT))
def test_every_device_has_a_slot_of_its_own(asked: list[str]) -> None:
    wanted = [(f"d{index}", address) for index, address in enumerate(asked)]
    named = [address for address in asked if address]
    if len(set(named)) != len(named):
        with pytest.raises(slots.SlotError, match="another device has"):
            slots.allocate(wanted)
        return
    given_slots = slots.allocate(wanted)
    assert len(set(given_slots.values())) == len(wanted)
    assert all(slots.FIRST <= slot <= slots.LAST for slot in given_slots.values())
    assert all(slots.address(given_slots[name]) == address for name, address in wanted if address)


@pytest.mark.parametrize("text", ["0000:00:04.0", "0000:01:05.0", "0000:00:05.1", "0000:00:20.0", "nonsense"])
def test_address_that_cannot_be_had(text: str) -> None:
    with pytest.raises(slots.SlotError, match="can be had"):
        slots.allocate([("d", text)])


def test_where_the_kernel_can_the_vmm_is_kept_to_the_machines_files() -> None:
    machine = smallest()
    layer = VolumeHandle.Layer(handle="top", format=VolumeHandle.Layer.FORMAT_QCOW2)
    base = VolumeHandle.Layer(handle="base", format=VolumeHandle.Layer.FORMAT_RAW, read_only=True)
    machine.disks.add(id="root", kind=Disk.KIND_DISK, bus=Disk.BUS_VIRTIO, volume=VolumeHandle(layers=[layer, base]))
    host = dataclasses.replace(HOST, landlock=True)
    made = translate(machine, host)
    number = next(slot.number for slot in made.launch.descriptors if slot.handle == "base")
    assert made.config["landlock_enable"] is True
    assert made.config["landlock_rules"] == [
        {"path": ".", "access": "rw"},
        {"path": f"/proc/self/fd/{number}", "access": "r"},
    ]
    machine.parameters["landlock"] = "off"
    assert "landlock_enable" not in translate(machine, host).config
    assert "landlock_enable" not in translate(machine, HOST).config

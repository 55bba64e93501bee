"""Machine -> domain: what a user wrote arrives, cannot break out, and is refused where it is not served."""

import uuid
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.drivers.libvirt.translate import Host, translate
from anyvisor.drivers.libvirt.translate.machine import NAMESPACE
from anyvisor.hri.errors import HriError, Refused
from anyvisor.hri.v1.machine_spec_pb2 import Console, CpuFeature, Disk, Firmware, Lifecycle, Machine, Nic, VolumeHandle
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM, Endpoint

HOST = Host(
    profiles=frozenset({"pc-q35-7.2", "pc-q35-7.1"}),
    default_profile="pc-q35-7.2",
    reasons={ACCELERATOR_KVM: "a small guest failed on it"},
    cpu_models=frozenset({"EPYC"}),
    displays=frozenset({"vga", "virtio", "bochs", "ramfb"}),
    directory="/var/tmp/kernels",
)
KVM_HOST = Host(
    profiles=HOST.profiles,
    default_profile="pc-q35-7.2",
    accelerators=(ACCELERATOR_KVM, ACCELERATOR_EMULATION),
    cpu_models=HOST.cpu_models,
)
RAW, QCOW2 = VolumeHandle.Layer.FORMAT_RAW, VolumeHandle.Layer.FORMAT_QCOW2


def machine(**changes: Any) -> Machine:
    made = Machine(id="m1", name="default_vm", **changes)
    made.memory.size_bytes = 64 << 20
    made.consoles.add(id="serial0", kind=Console.KIND_SERIAL, log_handle="log")
    return made


def add_disk(made: Machine, name: str = "root", bus: Disk.Bus = Disk.BUS_VIRTIO, **changes: Any) -> Disk:
    disk = made.disks.add(id=name, kind=Disk.KIND_DISK, bus=bus, **changes)
    disk.volume.layers.add(handle=f"{name}/0", format=RAW)
    return disk


def domain(made: Machine, host: Host = HOST) -> ET.Element:
    return ET.fromstring(translate(made, host).xml)


def found(made: Machine, path: str, host: Host = HOST) -> ET.Element:
    element = domain(made, host).find(path)
    assert element is not None
    return element


def refused(made: Machine, host: Host = HOST) -> set[str]:
    """The fields that are refused."""
    with pytest.raises(Refused) as caught:
        translate(made, host)
    assert all(finding.message for finding in caught.value.findings)
    return {finding.field for finding in caught.value.findings}


def test_the_domain_carries_our_name_and_mark() -> None:
    assert found(machine(), "name").text == "anyvisor-m1"
    assert found(machine(), f"metadata/{{{NAMESPACE}}}machine").get("id") == "m1"


def test_how_it_ended_is_held_by_libvirt() -> None:
    assert found(machine(), "on_crash").text == "preserve"
    assert found(machine(), "on_poweroff").text == "destroy"
    assert refused(machine(lifecycle=Lifecycle(on_reboot=Lifecycle.ON_REBOOT_STOP))) == {"lifecycle.on_reboot"}


def test_disks_are_descriptors_and_chains_end_where_we_say() -> None:
    made = machine()
    disk = made.disks.add(id="root", kind=Disk.KIND_DISK, bus=Disk.BUS_VIRTIO)
    disk.volume.layers.add(handle="top", format=QCOW2, direct=True)
    disk.volume.layers.add(handle="base", format=RAW, read_only=True)
    result = translate(made, HOST)
    element = ET.fromstring(result.xml).find("devices/disk")
    assert element is not None
    top, below = element.find("source"), element.find("backingStore/source")
    assert top is not None
    assert below is not None
    groups = [str(each.get("fdgroup")) for each in (top, below)]
    assert [result.groups[each] for each in groups] == ["top", "base"]
    end = element.find("backingStore/backingStore")
    assert end is not None
    assert not end.attrib
    driver = element.find("driver")
    assert driver is not None
    assert (driver.get("type"), driver.get("cache")) == ("qcow2", "none")
    assert set(result.handles) == {"top", "base", "console/serial0"}


def test_addresses_are_given_once_and_kept() -> None:
    made = machine()
    add_disk(made, "a")
    add_disk(made, "b", pci_address="0000:01:00.0")
    made.nics.add(id="n", mac="52:54:00:00:00:01", model=Nic.MODEL_VIRTIO).user.network = "10.0.2.0/24"
    result = translate(made, HOST)
    assert {each.id: each.address for each in result.devices} == {
        "n": "0000:03:00.0",
        "a": "0000:02:00.0",
        "b": "0000:01:00.0",
    }
    assert len(ET.fromstring(result.xml).findall("devices/controller[@type='pci']")) == 3


def test_two_disks_cannot_have_one_place() -> None:
    made = machine()
    add_disk(made, "a", pci_address="0000:01:00.0")
    add_disk(made, "b", pci_address="0000:01:00.0")
    with pytest.raises(Refused, match="given to two devices"):
        translate(made, HOST)


def test_kernels_are_paths_that_the_driver_fills() -> None:
    made = machine()
    made.boot.kernel.kernel_handle = "k"
    made.boot.kernel.initrd_handle = "i"
    made.boot.kernel.command_line = 'a="b" <c>'
    result = translate(made, HOST)
    assert result.kernel_files == {"kernel": "k", "initrd": "i"}
    assert found(made, "os/kernel").text == "/var/tmp/kernels/m1/kernel"
    assert found(made, "os/cmdline").text == 'a="b" <c>'


def test_endpoints_are_served_by_the_driver() -> None:
    made = machine()
    made.displays.add(id="d0")
    result = translate(made, HOST)
    assert [each.purpose for each in result.endpoints] == [Endpoint.PURPOSE_CONSOLE, Endpoint.PURPOSE_DISPLAY]
    assert result.endpoints[0].reader_logs
    assert {"console/serial0", "display/d0"} <= set(result.handles)


def test_identity_is_stable_and_arrives() -> None:
    assert found(machine(), "uuid").text == found(machine(), "uuid").text
    made = machine()
    made.identity.uuid = str(uuid.UUID(int=7))
    made.identity.serial = "S-1"
    made.identity.chassis_manufacturer, made.identity.chassis_sku = "Maker", "C-1"
    assert found(made, "sysinfo/system/entry[@name='serial']").text == "S-1"
    assert found(made, "sysinfo/chassis/entry[@name='manufacturer']").text == "Maker"
    assert found(made, "sysinfo/chassis/entry[@name='sku']").text == "C-1"
    assert found(made, "uuid").text == str(uuid.UUID(int=7))


@pytest.mark.parametrize(
    ("model", "host", "mode"),
    [
        ("", HOST, "maximum"),
        ("host-model", HOST, "maximum"),
        ("", KVM_HOST, "host-passthrough"),
        ("host-model", KVM_HOST, "host-model"),
        ("EPYC", KVM_HOST, "custom"),
    ],
)
def test_cpu_models(model: str, host: Host, mode: str) -> None:
    made = machine()
    made.cpu.model = model
    made.cpu.features.add(name="avx2", policy=CpuFeature.POLICY_FORBID)
    assert found(made, "cpu", host).get("mode") == mode
    assert found(made, "cpu/feature", host).get("policy") == "forbid"


def test_what_is_not_served_is_refused_by_its_field() -> None:
    made = machine(profile="pc-i440fx-7.2", accelerator=ACCELERATOR_KVM)
    made.boot.firmware.kind = Firmware.KIND_UEFI
    made.cpu.model = "Z80"
    add_disk(made, "cd").bus = Disk.BUS_USB
    block = add_disk(made, "block")
    block.volume.layers[0].block_device = True
    made.disks.add(id="none", kind=Disk.KIND_DISK)
    made.displays.add(id="d", model="cirrus")
    assert refused(made) == {
        "profile",
        "accelerator",
        "boot.firmware.kind",
        "cpu.model",
        "disks[0].bus",
        "disks[1].volume.layers[0].block_device",
        "disks[2].volume",
        "displays[0].model",
    }


@pytest.mark.parametrize("path", ["nics[0].tap", "filesystems[0]", "memory.page_bytes"])
def test_fields_that_it_does_not_know_are_refused(path: str) -> None:
    made = machine()
    if path.startswith("nics"):
        made.nics.add(id="n", mac="52:54:00:00:00:01").tap.handles.append("t")
    elif path.startswith("filesystems"):
        made.filesystems.add(id="f", tag="t")
    else:
        made.memory.page_bytes = 2 << 20
    assert path in refused(made)


@given(text=st.text(max_size=60))
def test_no_text_breaks_out_of_its_place(text: str) -> None:
    made = machine()
    made.boot.kernel.kernel_handle = "k"
    made.boot.kernel.command_line = text
    made.identity.serial = text
    add_disk(made).serial = text
    try:
        parsed = domain(made)
    except HriError:
        return
    assert len(parsed.findall("devices/disk")) == 1
    assert [each.tag for each in parsed.findall("os/*")][:2] == ["type", "kernel"]

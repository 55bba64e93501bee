"""Machine -> command line: what a user wrote arrives, cannot break out, and is refused where it is not served."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.drivers.qemu.translate import Host, Translation, translate
from anyvisor.hri.errors import HriError, InvalidRequest, Refused
from anyvisor.hri.v1.machine_spec_pb2 import (
    Console,
    CpuFeature,
    Disk,
    Firmware,
    Input,
    Lifecycle,
    Machine,
    Nic,
    PortForward,
    VolumeHandle,
)
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM, ACCELERATOR_MSHV, Endpoint

HOST = Host(
    profiles=frozenset({"pc-q35-7.2", "pc-q35-7.1", "pc-i440fx-7.2"}),
    default_profile="pc-q35-7.2",
    reasons={ACCELERATOR_KVM: "/dev/kvm does not exist"},
    cpu_models=frozenset({"EPYC"}),
    displays=frozenset({"VGA", "secondary-vga", "virtio-vga", "virtio-gpu-pci", "bochs-display", "ramfb"}),
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


def values(result: Translation, option: str) -> list[str]:
    argv = list(result.launch.argv)
    return [argv[i + 1] for i, word in enumerate(argv[:-1]) if word == f"-{option}"]


def documents(result: Translation, option: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in values(result, option) if text.startswith("{")]


def device(result: Translation, device_id: str) -> dict[str, Any]:
    [found] = [each for each in documents(result, "device") if each["id"] == device_id]
    return found


def refused(made: Machine, host: Host = HOST) -> set[str]:
    """The fields that are refused."""
    with pytest.raises(Refused) as caught:
        translate(made, host)
    assert all(finding.message for finding in caught.value.findings)
    return {finding.field for finding in caught.value.findings}


def test_process_is_held_sandboxed_and_has_no_defaults() -> None:
    result = translate(machine(), HOST)
    argv = list(result.launch.argv)
    assert argv[0] == "/usr/bin/qemu-system-x86_64"
    assert {"-S", "-nodefaults", "-no-user-config"} <= set(argv)
    assert values(result, "display") == ["none"]
    assert values(result, "action") == ["shutdown=pause,panic=pause,reboot=reset"]
    assert values(result, "sandbox")[0].startswith("on,")
    assert values(result, "name") == ["guest=m1,debug-threads=on"]


def test_endpoints_are_bound_by_the_agent_and_announced() -> None:
    result = translate(machine(), HOST)
    slots = {slot.handle: slot.number for slot in result.launch.descriptors}
    assert {each.id: each.purpose for each in result.endpoints} == {
        "control": Endpoint.PURPOSE_CONTROL,
        "stop": Endpoint.PURPOSE_STOP,
        "console/serial0": Endpoint.PURPOSE_CONSOLE,
    }
    for endpoint in result.endpoints:
        assert endpoint.listen_descriptor == slots[endpoint.id]
        assert any(f"fd={endpoint.listen_descriptor},server=on" in text for text in values(result, "chardev"))
    [stop] = [each for each in result.endpoints if each.id == "stop"]
    assert b"system_powerdown" in stop.stop_script.request[-1].send
    assert stop.stop_script.finish


def test_console_log_is_an_append_only_descriptor() -> None:
    result = translate(machine(), HOST)
    number = {slot.handle: slot.number for slot in result.launch.descriptors}["log"]
    assert f"fd={number},set=1" in values(result, "add-fd")
    assert any(text.endswith(",logfile=/dev/fdset/1,logappend=on") for text in values(result, "chardev"))


def test_closed_console_has_no_endpoint() -> None:
    made = machine()
    made.consoles[0].closed = True
    result = translate(made, HOST)
    assert {each.id for each in result.endpoints} == {"control", "stop"}
    assert any(text.startswith("null,id=console-serial0") for text in values(result, "chardev"))


@pytest.mark.parametrize(
    ("host", "wanted", "given"),
    [
        (HOST, 0, ACCELERATOR_EMULATION),
        (HOST, ACCELERATOR_EMULATION, ACCELERATOR_EMULATION),
        (KVM_HOST, 0, ACCELERATOR_KVM),
        (KVM_HOST, ACCELERATOR_KVM, ACCELERATOR_KVM),
        (KVM_HOST, ACCELERATOR_EMULATION, ACCELERATOR_EMULATION),
    ],
)
def test_accelerator(host: Host, wanted: Any, given: int) -> None:
    result = translate(machine(accelerator=wanted), host)
    assert result.accelerator == given
    assert values(result, "accel")[0].startswith("kvm" if given == ACCELERATOR_KVM else "tcg,")


def test_accelerator_that_runs_no_guest_here_is_refused_with_the_reason() -> None:
    with pytest.raises(Refused, match="/dev/kvm does not exist"):
        translate(machine(accelerator=ACCELERATOR_KVM), HOST)
    assert refused(machine(accelerator=ACCELERATOR_MSHV)) == {"accelerator"}


@pytest.mark.parametrize("profile", ["", "q35", "pc-q35-7.2"])
def test_machine_type_is_told_in_full(profile: str) -> None:
    assert translate(machine(profile=profile), HOST).profile == "pc-q35-7.2"


@pytest.mark.parametrize("profile", ["pc-q35-99.9", "pc-i440fx-7.2", "microvm", "q35,kernel-irqchip=off", "a" * 300])
def test_other_machine_types_are_refused(profile: str) -> None:
    assert refused(machine(profile=profile)) == {"profile"}


@pytest.mark.parametrize(
    ("host", "model", "cpu", "noted"),
    [
        (HOST, "", "max", False),
        (HOST, "host-model", "max", True),
        (HOST, "host-passthrough", "max", True),
        (HOST, "EPYC", "EPYC", False),
        (KVM_HOST, "", "host", False),
        (KVM_HOST, "host-model", "host", False),
    ],
)
def test_cpu_model(host: Host, model: str, cpu: str, noted: bool) -> None:
    made = machine()
    made.cpu.model = model
    result = translate(made, host)
    assert values(result, "cpu") == [cpu]
    assert [finding.field for finding in result.findings] == (["cpu.model"] if noted else [])


def test_cpu_features_and_topology() -> None:
    made = machine()
    made.cpu.sockets, made.cpu.cores, made.cpu.threads = 2, 3, 2
    made.cpu.features.add(name="vmx", policy=CpuFeature.POLICY_DISABLE)
    made.cpu.features.add(name="aes", policy=CpuFeature.POLICY_REQUIRE)
    result = translate(made, HOST)
    assert values(result, "smp") == ["cpus=12,sockets=2,cores=3,threads=2"]
    assert values(result, "cpu") == ["max,vmx=off,aes=on,enforce=on"]


def test_sockets_that_can_come_while_the_guest_runs_have_their_places() -> None:
    made = machine()
    made.cpu.sockets, made.cpu.cores, made.cpu.max_sockets = 2, 3, 8
    assert values(translate(made, HOST), "smp") == ["cpus=6,maxcpus=24,sockets=8,cores=3,threads=1"]
    made.cpu.max_sockets = 400
    result = translate(made, HOST)
    assert values(result, "smp") == ["cpus=6,maxcpus=255,sockets=85,cores=3,threads=1"]
    assert [(each.field, each.have) for each in result.findings] == [("cpu.max_sockets", "85")]


@pytest.mark.parametrize("model", ["Unknown", "EPYC,check=off", "max,+x", "-S"])
def test_cpu_models_that_are_not_known_are_refused(model: str) -> None:
    made = machine()
    made.cpu.model = model
    assert refused(made) == {"cpu.model"}


@pytest.mark.parametrize("size", [0, 4096, (1 << 20) - 4096, (64 << 20) + 1])
def test_memory_that_no_guest_can_have_is_refused(size: int) -> None:
    made = machine()
    made.memory.size_bytes = size
    assert refused(made) == {"memory.size_bytes"}


def test_shared_memory_is_a_memfd() -> None:
    made = machine()
    made.memory.shared = True
    result = translate(made, HOST)
    [memory] = [each for each in documents(result, "object") if each["id"] == "memory"]
    assert (memory["qom-type"], memory["size"], memory["share"]) == ("memory-backend-memfd", 64 << 20, True)
    assert "memory-backend=memory" in values(result, "machine")[0]


def test_identity_cannot_break_out_of_its_option() -> None:
    made = machine()
    made.identity.uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223"
    made.identity.product = "a,b=c,type=2"
    made.identity.oem_strings.append("x,path=/etc/shadow")
    made.identity.chassis_asset = "y,"
    result = translate(made, HOST)
    assert values(result, "uuid") == ["5d307ca9-b3ef-428c-8861-06e72d69f223"]
    assert values(result, "smbios") == [
        "type=1,product=a,,b=c,,type=2,uuid=5d307ca9-b3ef-428c-8861-06e72d69f223",
        "type=3,asset=y,,",
        "type=11,value=x,,path=/etc/shadow",
    ]


def test_uuid_is_the_same_at_each_start() -> None:
    assert values(translate(machine(), HOST), "uuid") == values(translate(machine(), HOST), "uuid")
    made = machine()
    made.identity.uuid = "not one"
    assert refused(made) == {"identity.uuid"}


def test_kernel_comes_by_descriptor_and_its_words_are_one_argument() -> None:
    made = machine()
    made.boot.kernel.kernel_handle, made.boot.kernel.initrd_handle = "k", "i"
    made.boot.kernel.command_line = 'console=ttyS0 -S "quoted", \n-kernel /etc/shadow'
    result = translate(made, HOST)
    slots = {slot.handle: slot.number for slot in result.launch.descriptors}
    assert values(result, "kernel") == [f"/proc/self/fd/{slots['k']}"]
    assert values(result, "initrd") == [f"/proc/self/fd/{slots['i']}"]
    assert values(result, "append") == [made.boot.kernel.command_line]
    assert values(result, "bios") == ["qboot.rom"]


def test_qboot_is_for_machines_that_it_starts_correctly() -> None:
    def firmware(**changes: Any) -> list[str]:
        made = machine(**changes)
        made.boot.kernel.kernel_handle = "k"
        for index, model in enumerate(models):
            made.nics.add(id=f"n{index}", mac="02:00:00:00:00:01", model=model).user.network = "10.0.2.0/24"
        return values(translate(made, HOST), "bios")

    models: list[Nic.Model] = []
    assert firmware() == ["qboot.rom"]
    assert firmware(parameters={"kernelFirmware": "seabios"}) == []
    models = [Nic.MODEL_VIRTIO]
    assert firmware() == ["qboot.rom"]
    models = [Nic.MODEL_E1000]
    assert firmware() == []
    models = [Nic.MODEL_VIRTIO, Nic.MODEL_VIRTIO]
    assert firmware() == []


def test_a_graphics_card_needs_firmware_that_starts_it() -> None:
    made = machine()
    made.boot.kernel.kernel_handle = "k"
    made.displays.add(id="display0")
    assert values(translate(made, HOST), "bios") == []


@pytest.mark.parametrize(
    ("model", "driver"),
    [
        ("", "VGA"),
        ("vga", "VGA"),
        ("virtio", "virtio-vga"),
        ("bochs", "bochs-display"),
        ("ramfb", "ramfb"),
    ],
)
def test_a_display_is_a_card_and_a_socket_of_its_own(model: str, driver: str) -> None:
    made = machine()
    made.displays.add(id="display0", model=model, heads=1)
    result = translate(made, HOST)
    card = device(result, "display-display0")
    assert card["driver"] == driver
    assert ("bus" in card) == (driver != "ramfb")
    [vnc] = values(result, "vnc")
    assert vnc == "unix:display-display0.sock,id=vnc-display0,display=display-display0,head=0"
    [endpoint] = [each for each in result.endpoints if each.purpose == Endpoint.PURPOSE_DISPLAY]
    assert (endpoint.id, endpoint.protocol, endpoint.device_id) == ("display/display0", "rfb", "display0")
    assert endpoint.vmm_path == "display-display0.sock"
    assert not endpoint.exclusive
    assert result.launch.working_directory


def test_without_a_display_there_is_no_trace_of_one() -> None:
    result = translate(machine(), HOST)
    assert values(result, "vnc") == []
    assert not result.launch.working_directory


def test_further_displays_leave_the_legacy_registers_to_the_first() -> None:
    made = machine()
    for index, model in enumerate(("vga", "vga", "virtio", "bochs")):
        made.displays.add(id=f"d{index}", model=model)
    result = translate(made, HOST)
    cards = [device(result, f"display-d{index}") for index in range(4)]
    assert [card["driver"] for card in cards] == ["VGA", "secondary-vga", "virtio-gpu-pci", "bochs-display"]
    assert len({card["addr"] for card in cards}) == 4
    assert len(values(result, "vnc")) == 4


@pytest.mark.parametrize(
    ("models", "field"),
    [
        (["cirrus"], "displays[0].model"),
        (["qxl"], "displays[0].model"),
        (["vga", "ramfb"], "displays[1].model"),
        (["vga", "vga", "vga", "vga", "vga"], "displays[4]"),
    ],
)
def test_displays_that_cannot_be_are_refused(models: list[str], field: str) -> None:
    made = machine()
    for index, model in enumerate(models):
        made.displays.add(id=f"d{index}", model=model)
    assert refused(made) == {field}


def test_several_heads_are_refused() -> None:
    made = machine()
    made.displays.add(id="d0", heads=2)
    assert refused(made) == {"displays[0].heads"}


@pytest.mark.parametrize(
    ("bus", "driver"), [("", "usb-tablet"), ("usb", "usb-tablet"), ("virtio", "virtio-tablet-pci")]
)
def test_tablets(bus: str, driver: str) -> None:
    made = machine()
    made.devices.add(id="input.pen").input.MergeFrom(Input(type="tablet", bus=bus))
    result = translate(made, HOST)
    assert device(result, "device-input.pen")["driver"] == driver
    assert any(each["driver"] == "qemu-xhci" for each in documents(result, "device")) == (driver == "usb-tablet")


def test_other_input_devices_are_refused() -> None:
    made = machine()
    made.devices.add(id="input.mouse").input.MergeFrom(Input(type="mouse", bus="ps2"))
    assert refused(made) == {"devices[0].input.type", "devices[0].input.bus"}


def test_bios_with_serial_output_and_a_boot_order() -> None:
    made = machine()
    made.boot.firmware.kind = Firmware.KIND_BIOS
    made.boot.firmware.serial_output = True
    add_disk(made, "a")
    add_disk(made, "b")
    made.boot.order.extend(["b"])
    result = translate(made, HOST)
    assert "graphics=off" in values(result, "machine")[0]
    assert values(result, "boot") == ["strict=on"]
    assert device(result, "disk-b")["bootindex"] == 1
    assert "bootindex" not in device(result, "disk-a")


def test_without_an_order_disks_are_tried_as_they_stand() -> None:
    made = machine()
    add_disk(made, "a")
    add_disk(made, "b", Disk.BUS_SATA)
    result = translate(made, HOST)
    assert [device(result, f"disk-{name}")["bootindex"] for name in "ab"] == [1, 2]


def test_layers_are_chained_by_name_and_nothing_follows_the_image() -> None:
    made = machine()
    disk = made.disks.add(id="root", kind=Disk.KIND_DISK)
    disk.volume.layers.add(handle="top", format=QCOW2, direct=True)
    disk.volume.layers.add(handle="middle", format=QCOW2, read_only=True)
    disk.volume.layers.add(handle="base", format=RAW, read_only=True, block_device=True)
    result = translate(made, HOST)
    nodes = {each["node-name"]: each for each in documents(result, "blockdev")}
    assert nodes["d0-root-0"]["backing"] == "d0-root-1"
    assert nodes["d0-root-1"]["backing"] == "d0-root-2"
    assert "backing" not in nodes["d0-root-2"]
    assert [nodes[f"d0-root-{n}"]["read-only"] for n in range(3)] == [False, True, True]
    assert [nodes[f"d0-root-{n}-f"]["driver"] for n in range(3)] == ["file", "file", "host_device"]
    assert all(nodes[f"d0-root-{n}-f"]["filename"].startswith("/dev/fdset/") for n in range(3))
    assert all(nodes[f"d0-root-{n}-f"]["locking"] == "on" for n in range(3))
    assert nodes["d0-root-0-f"]["cache"]["direct"] is True
    assert device(result, "disk-root")["drive"] == "d0-root-0"


def test_lowest_qcow2_layer_states_that_it_has_no_backing() -> None:
    made = machine()
    made.disks.add(id="root", kind=Disk.KIND_DISK).volume.layers.add(handle="only", format=QCOW2)
    nodes = {each["node-name"]: each for each in documents(translate(made, HOST), "blockdev")}
    assert nodes["d0-root-0"]["backing"] is None


@pytest.mark.parametrize(
    ("cache", "direct", "node_direct", "write_cache"),
    [
        (Disk.CACHE_UNSPECIFIED, True, True, "on"),
        (Disk.CACHE_UNSPECIFIED, False, False, "off"),
        (Disk.CACHE_NONE, True, True, "on"),
        (Disk.CACHE_WRITETHROUGH, True, False, "off"),
        (Disk.CACHE_WRITEBACK, False, False, "on"),
    ],
)
def test_cache_modes(cache: Disk.Cache, direct: bool, node_direct: bool, write_cache: str) -> None:
    made = machine()
    add_disk(made, cache=cache).volume.layers[0].direct = direct
    result = translate(made, HOST)
    nodes = {each["node-name"]: each for each in documents(result, "blockdev")}
    assert nodes["d0-root-0-f"]["cache"]["direct"] is node_direct
    assert device(result, "disk-root")["write-cache"] == write_cache


def test_what_needs_a_direct_volume_is_refused_without_one() -> None:
    made = machine()
    add_disk(made, cache=Disk.CACHE_NONE, io=Disk.IO_NATIVE)
    assert refused(made) == {"disks[0].cache", "disks[0].io"}


@pytest.mark.parametrize(
    ("policy", "errors"),
    [
        (Disk.ON_ERROR_UNSPECIFIED, ("stop", "stop")),
        (Disk.ON_ERROR_REPORT, ("report", "report")),
        (Disk.ON_ERROR_IGNORE, ("ignore", "ignore")),
        (Disk.ON_ERROR_STOP_WHEN_FULL, ("enospc", "report")),
    ],
)
def test_error_policies(policy: Disk.OnError, errors: tuple[str, str]) -> None:
    made = machine()
    add_disk(made, on_error=policy)
    found = device(translate(made, HOST), "disk-root")
    assert (found["werror"], found["rerror"]) == errors


def test_disk_buses_and_an_empty_tray() -> None:
    made = machine()
    add_disk(made, "v")
    add_disk(made, "s", Disk.BUS_SATA)
    add_disk(made, "c", Disk.BUS_SCSI)
    made.disks.add(id="tray", kind=Disk.KIND_CDROM, bus=Disk.BUS_SATA)
    result = translate(made, HOST)
    assert device(result, "disk-v")["bus"] == "port2"
    assert (device(result, "disk-s")["driver"], device(result, "disk-s")["bus"]) == ("ide-hd", "ide.0")
    assert (device(result, "disk-c")["driver"], device(result, "disk-c")["bus"]) == ("scsi-hd", "scsi0.0")
    tray = device(result, "disk-tray")
    assert (tray["driver"], tray["bus"]) == ("ide-cd", "ide.1")
    assert "drive" not in tray
    assert "bootindex" not in tray


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"kind": Disk.KIND_LUN}, "disks[0].kind"),
        ({"kind": Disk.KIND_CDROM, "bus": Disk.BUS_VIRTIO}, "disks[0].bus"),
        ({"bus": Disk.BUS_SATA, "queues": 2}, "disks[0]"),
        ({"tray_open": True}, "disks[0].tray_open"),
        ({"serial": "a\0b"}, "disks[0].serial"),
        ({"hotplugged": True}, "disks[0].hotplugged"),
    ],
)
def test_disks_that_are_not_served_are_refused(changes: dict[str, Any], field: str) -> None:
    made = machine()
    disk = made.disks.add(id="root", **{"kind": Disk.KIND_DISK, **changes})
    disk.volume.layers.add(handle="h", format=RAW)
    assert refused(made) == {field}


def test_formats_must_be_recorded() -> None:
    made = machine()
    made.disks.add(id="root", kind=Disk.KIND_DISK).volume.layers.add(handle="h")
    assert refused(made) == {"disks[0].volume.layers[0].format"}


def test_seven_sata_disks_are_one_too_many() -> None:
    made = machine()
    for number in range(7):
        add_disk(made, f"d{number}", Disk.BUS_SATA)
    assert refused(made) == {"disks[6].bus"}


def test_nics_by_tap_and_user_network() -> None:
    made = machine()
    one = made.nics.add(id="one", mac="02:00:00:00:00:01", mtu=1400)
    one.tap.handles.extend(["t0", "t1"])
    two = made.nics.add(id="two", mac="02:00:00:00:00:02", model=Nic.MODEL_E1000E)
    two.user.network = "10.0.2.0/24"
    two.user.hostname = "a,b"
    two.user.forwards.add(protocol=PortForward.PROTOCOL_TCP, host_address="127.0.0.1", host_port=0, guest_port=22)
    result = translate(made, HOST)
    slots = {slot.handle: slot.number for slot in result.launch.descriptors}
    tap, user = documents(result, "netdev")
    assert tap == {"id": "net-one", "type": "tap", "fds": f"{slots['t0']}:{slots['t1']}"}
    assert (user["net"], user["host"], user["dhcpstart"]) == ("10.0.2.0/24", "10.0.2.1", "10.0.2.2")
    assert user["hostfwd"] == [{"str": "tcp:127.0.0.1:0-:22"}]
    assert user["hostname"] == "a,b"
    first = device(result, "nic-one")
    assert (first["mq"], first["vectors"], first["host_mtu"]) == (True, 6, 1400)
    assert [(each.id, each.address) for each in result.devices] == [
        ("one", "0000:01:00.0"),
        ("two", "0000:03:00.0"),
    ]


def test_a_user_network_is_warned_of_or_cut_off() -> None:
    made = machine()
    nic = made.nics.add(id="n", mac="02:00:00:00:00:01")
    nic.user.network = "10.0.2.0/24"
    result = translate(made, HOST)
    assert [(each.severity, each.field) for each in result.findings] == [("warn", "nics[0].user")]
    assert "restrict" not in documents(result, "netdev")[0]
    made.parameters["userNetwork"] = "isolated"
    result = translate(made, HOST)
    assert list(result.findings) == []
    assert documents(result, "netdev")[0]["restrict"] is True


BAD_NICS: list[tuple[Callable[[Nic], object], str]] = [
    (lambda nic: setattr(nic, "mac", "02:00:00:00:00"), "nics[0].mac"),
    (lambda nic: setattr(nic, "mac", "x,script=/bin/sh"), "nics[0].mac"),
    (lambda nic: setattr(nic, "model", Nic.MODEL_IGB), "nics[0].model"),
    (lambda nic: setattr(nic.user, "network", "10.0.2.0/31"), "nics[0].user.network"),
    (lambda nic: setattr(nic.user, "network", "nonsense"), "nics[0].user.network"),
    (lambda nic: nic.user.forwards.add(host_port=1), "nics[0].user.forwards[0]"),
    (lambda nic: nic.ClearField("user"), "nics[0]"),
]


@pytest.mark.parametrize(("change", "field"), BAD_NICS)
def test_nics_that_cannot_be_are_refused(change: Callable[[Nic], object], field: str) -> None:
    made = machine()
    nic = made.nics.add(id="n", mac="02:00:00:00:00:01")
    nic.user.network = "10.0.2.0/24"
    change(nic)
    assert refused(made) == {field}


def test_fixed_devices_sit_where_they_always_do() -> None:
    made = machine()
    made.devices.add(id="balloon").balloon.free_page_reporting = True
    made.devices.add(id="rng").rng.SetInParent()
    made.devices.add(id="agent").guest_agent_port.SetInParent()
    before = {each["id"]: each.get("addr") for each in documents(translate(made, HOST), "device")}
    for number in range(10):
        add_disk(made, f"d{number}")
    after = {each["id"]: each.get("addr") for each in documents(translate(made, HOST), "device")}
    assert before.items() <= after.items()


def test_all_that_is_not_served_is_named_at_once() -> None:
    made = machine()
    made.cpu.dedicated.append(1)
    made.memory.locked = True
    made.filesystems.add(id="f", vhost_user_handle="h")
    assert refused(made) >= {"cpu.dedicated[0]", "memory.locked", "filesystems[0].vhost_user_handle"}


def test_ids_are_checked() -> None:
    made = machine()
    add_disk(made, "a")
    add_disk(made, "a")
    with pytest.raises(InvalidRequest, match="same id"):
        translate(made, HOST)
    made = machine()
    add_disk(made, "a,readonly=off")
    with pytest.raises(InvalidRequest, match="device id"):
        translate(made, HOST)


def test_reboot_policy() -> None:
    made = machine()
    made.lifecycle.on_reboot = Lifecycle.ON_REBOOT_STOP
    assert values(translate(made, HOST), "action") == ["shutdown=pause,panic=pause,reboot=shutdown"]


names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-._", min_size=1, max_size=63)
texts = st.text(max_size=40)


@given(
    disks=st.lists(st.tuples(names, st.sampled_from([Disk.BUS_VIRTIO, Disk.BUS_SATA, Disk.BUS_SCSI])), max_size=8),
    nics=st.lists(names, max_size=4),
    serial=texts,
    product=texts,
    command_line=texts,
)
def test_whatever_is_translated_is_well_formed(
    disks: list[tuple[str, Disk.Bus]], nics: list[str], serial: str, product: str, command_line: str
) -> None:
    made = machine()
    for name, bus in disks:
        add_disk(made, name, bus, serial=serial)
    for name in nics:
        made.nics.add(id=name, mac="02:00:00:00:00:01").tap.handles.append(f"tap/{name}")
    made.identity.product = product
    made.boot.kernel.kernel_handle = "kernel"
    made.boot.kernel.command_line = command_line
    try:
        result = translate(made, HOST)
    except HriError:
        return
    numbers = [slot.number for slot in result.launch.descriptors]
    assert len(set(numbers)) == len(numbers)
    assert all(3 <= number <= 250 for number in numbers)
    assert not any("\0" in word for word in result.launch.argv)
    devices = documents(result, "device")
    assert len({each["id"] for each in devices}) == len(devices)
    places = [(each["bus"], each["addr"]) for each in devices if "addr" in each]
    assert len(set(places)) == len(places)
    for each in devices:
        assert {"id", "driver"} <= each.keys()
        assert "bus" in each or each["driver"] == "isa-serial"
    for node in documents(result, "blockdev"):
        assert len(node["node-name"]) <= 31

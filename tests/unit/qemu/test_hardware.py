"""Buses, boards and small devices: what each field of a machine becomes, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anyvisor.drivers.qemu.handle import first_run
from anyvisor.drivers.qemu.translate import Host, Translation, translate
from anyvisor.hri.v1.machine_spec_pb2 import (
    Balloon,
    CpuFeature,
    Disk,
    Firmware,
    Input,
    Machine,
    Nic,
    Sound,
    UsbRedirection,
    Vsock,
    Watchdog,
)
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM, Endpoint
from tests.unit.qemu.test_translate import HOST, KVM_HOST, add_disk, device, documents, machine, refused, values

KNOWN = replace(
    KVM_HOST,
    huge_page_bytes=frozenset({2 << 20}),
    cpu_features={ACCELERATOR_KVM: frozenset({"aes", "sse4.1"}), ACCELERATOR_EMULATION: frozenset({"aes"})},
)


def with_device(**kind: Any) -> Machine:
    made = machine()
    made.devices.add(id="d.0", **kind)
    return made


def notes(result: Translation) -> set[str]:
    return {finding.field for finding in result.findings}


def test_disks_on_usb_have_ports_of_their_own_beside_the_pointer() -> None:
    made = with_device(input=Input(type="tablet", bus="usb"))
    add_disk(made, "stick", Disk.BUS_USB, serial="S1")
    cd = add_disk(made, "cd", Disk.BUS_USB)
    cd.kind = Disk.KIND_CDROM
    result = translate(made, HOST)
    assert [each["id"] for each in documents(result, "device") if each["driver"] == "qemu-xhci"] == ["usb"]
    bridges = [device(result, f"bridge-{name}") for name in ("stick", "cd")]
    assert [(each["bus"], each["port"]) for each in bridges] == [("usb.0", "2"), ("usb.0", "3")]
    assert device(result, "device-d.0")["port"] == "1"
    assert device(result, "disk-stick")["driver"] == "scsi-hd"
    assert device(result, "disk-stick")["serial"] == "S1"
    assert device(result, "disk-cd")["driver"] == "scsi-cd"
    assert {each.id: each.address for each in result.devices} == {"stick": "usb:0", "cd": "usb:1"}


def test_without_anything_on_usb_there_is_no_controller() -> None:
    result = translate(with_device(input=Input(type="tablet", bus="virtio")), HOST)
    assert "usb" not in {each["id"] for each in documents(result, "device")}


def test_usb_takes_so_many_disks() -> None:
    made = machine()
    for index in range(12):
        add_disk(made, f"d{index}", Disk.BUS_USB)
    assert refused(made) == {"disks[10].bus", "disks[11].bus"}


def test_redirected_devices_have_a_channel_each() -> None:
    result = translate(with_device(usb_redirection=UsbRedirection(channels=3)), HOST)
    found = [each for each in result.endpoints if each.purpose == Endpoint.PURPOSE_USB_REDIRECTION]
    assert [each.id for each in found] == ["usb/0", "usb/1", "usb/2"]
    assert [device(result, f"device-d.0-{n}")["port"] for n in range(3)] == ["15", "14", "13"]
    assert refused(with_device(usb_redirection=UsbRedirection(channels=5))) == {"devices[0].usb_redirection.channels"}


@pytest.mark.parametrize(
    ("action", "told"), [("", "reset"), ("reset", "reset"), ("poweroff", "pause"), ("shutdown", "shutdown")]
)
def test_watchdog(action: str, told: str) -> None:
    result = translate(with_device(watchdog=Watchdog(model="i6300esb", action=action)), HOST)
    assert f"watchdog={told}" in values(result, "action")
    assert device(result, "device-d.0")["driver"] == "i6300esb"


@pytest.mark.parametrize(("model", "driver"), [("", "hda-duplex"), ("ich9", "hda-duplex"), ("ac97", "AC97")])
def test_sound(model: str, driver: str) -> None:
    result = translate(with_device(sound=Sound(model=model)), HOST)
    assert device(result, "device-d.0")["driver"] == driver
    assert values(result, "audiodev") == ["none,id=sound"]


def test_vsock_by_a_descriptor() -> None:
    result = translate(with_device(vsock=Vsock(cid=7, handle="device/vsock")), HOST)
    number = {slot.handle: slot.number for slot in result.launch.descriptors}["device/vsock"]
    assert device(result, "device-d.0")["guest-cid"] == 7
    assert device(result, "device-d.0")["vhostfd"] == str(number)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ({"watchdog": Watchdog(model="diag288")}, "watchdog.model"),
        ({"watchdog": Watchdog(action="nap")}, "watchdog.action"),
        ({"sound": Sound(model="sb16")}, "sound.model"),
    ],
)
def test_other_models_are_refused(kind: dict[str, Any], field: str) -> None:
    assert refused(with_device(**kind)) == {f"devices[0].{field}"}


def test_every_model_of_nic() -> None:
    made = machine()
    models = [Nic.MODEL_VIRTIO, Nic.MODEL_E1000, Nic.MODEL_E1000E, Nic.MODEL_NE2K_PCI, Nic.MODEL_PCNET]
    for index, model in enumerate([*models, Nic.MODEL_RTL8139]):
        nic = made.nics.add(id=f"n{index}", model=model, mac=f"02:00:00:00:00:0{index}")
        nic.user.network = "10.0.2.0/24"
    result = translate(made, HOST)
    drivers = ["virtio-net-pci-non-transitional", "e1000", "e1000e", "ne2k_pci", "pcnet", "rtl8139"]
    assert [device(result, f"nic-n{index}")["driver"] for index in range(6)] == drivers


def test_the_balloon_is_asked_as_often_as_the_machine_says() -> None:
    assert first_run(with_device(balloon=Balloon())).commands == [("cont", None)]
    [ask, last] = first_run(with_device(balloon=Balloon(statistics_seconds=10))).commands
    assert ask[0] == "qom-set"
    assert ask[1] == {
        "path": "/machine/peripheral/device-d.0",
        "property": "guest-stats-polling-interval",
        "value": 10,
    }
    assert last == ("cont", None)


def test_disks_share_io_threads_by_number() -> None:
    made = machine()
    for name, thread in (("a", 1), ("b", 2), ("c", 1)):
        add_disk(made, name, io_thread=thread)
    add_disk(made, "own", dedicated_io_thread=True)
    result = translate(made, HOST)
    threads = [each["id"] for each in documents(result, "object") if each["qom-type"] == "iothread"]
    assert threads == ["io1", "io2", "io-own"]
    assert [device(result, f"disk-{name}")["iothread"] for name in ("a", "b", "c", "own")] == [
        "io1",
        "io2",
        "io1",
        "io-own",
    ]


# Clock and timers


def clock(made: Machine, host: Host = HOST) -> tuple[str, list[str]]:
    result = translate(made, host)
    [rtc] = values(result, "rtc")
    return rtc, list(result.launch.env)


@pytest.mark.parametrize(
    ("offset", "zone"),
    [
        (0, []),
        (5 * 3600 + 1800, ["TZ=<GUEST>-05:30:00"]),
        (-3600, ["TZ=<GUEST>01:00:00"]),
        (-1, ["TZ=<GUEST>00:00:01"]),
    ],
)
def test_an_offset_is_the_zone_of_the_process(offset: int, zone: list[str]) -> None:
    made = machine()
    made.clock.utc_offset_seconds = offset
    rtc, env = clock(made)
    assert rtc == ("base=localtime,clock=host" if zone else "base=utc,clock=host")
    assert env == zone


def test_a_time_zone_by_its_name() -> None:
    made = machine()
    made.clock.timezone = "America/Argentina/Buenos_Aires"
    assert clock(made) == ("base=localtime,clock=host", ["TZ=America/Argentina/Buenos_Aires"])
    made.clock.timezone = "/etc/shadow"
    assert refused(made) == {"clock.timezone"}
    made.clock.utc_offset_seconds = 86401
    assert refused(made) == {"clock.utc_offset_seconds"}


@pytest.mark.parametrize(
    ("timer", "host", "option", "expected"),
    [
        ({"name": "rtc", "present": True, "tick_policy": "catchup"}, HOST, "rtc", "base=utc,clock=host,driftfix=slew"),
        ({"name": "rtc", "present": True, "track": "guest"}, HOST, "rtc", "base=utc,clock=vm"),
        ({"name": "hpet", "present": False}, HOST, "machine", "hpet=off"),
        ({"name": "pit", "present": True, "tick_policy": "delay"}, HOST, "machine", "pit=on"),
        ({"name": "pit", "present": True, "tick_policy": "discard"}, KVM_HOST, "global", "lost_tick_policy=discard"),
        ({"name": "kvm", "present": False}, KVM_HOST, "cpu", "host,kvmclock=off"),
        ({"name": "hyperv", "present": True}, KVM_HOST, "cpu", "host,hv-time=on"),
        ({"name": "kvm", "present": False}, HOST, "cpu", "max"),
    ],
)
def test_timers(timer: dict[str, Any], host: Host, option: str, expected: str) -> None:
    made = machine()
    made.clock.timers.add(**timer)
    result = translate(made, host)
    assert any(expected in text for text in values(result, option)), values(result, option)
    assert not result.findings


@pytest.mark.parametrize(
    ("timer", "field"),
    [
        ({"name": "rtc", "present": True, "tick_policy": "discard"}, "clock.timers[0].tick_policy"),
        ({"name": "rtc", "present": True, "track": "moon"}, "clock.timers[0].track"),
        ({"name": "pit", "present": True, "tick_policy": "catchup"}, "clock.timers[0].tick_policy"),
        ({"name": "tsc", "present": True}, "clock.timers[0]"),
    ],
)
def test_timers_that_cannot_be_so_are_refused(timer: dict[str, Any], field: str) -> None:
    made = machine()
    made.clock.timers.add(**timer)
    assert refused(made) == {field}


@pytest.mark.parametrize(
    ("timer", "field"),
    [
        ({"name": "kvm", "present": True}, "clock.timers[0]"),
        ({"name": "rtc", "present": False}, "clock.timers[0].present"),
        ({"name": "hyperv", "present": True}, "clock.timers[0]"),
        ({"name": "hpet", "present": True, "tick_policy": "catchup"}, "clock.timers[0].tick_policy"),
        ({"name": "pit", "present": True, "tick_policy": "discard"}, "clock.timers[0].tick_policy"),
    ],
)
def test_what_a_timer_cannot_do_is_told(timer: dict[str, Any], field: str) -> None:
    made = machine()
    made.clock.timers.add(**timer)
    assert notes(translate(made, HOST)) == {field}


# CPU and memory


def feature(policy: "CpuFeature.Policy", name: str = "aes") -> Machine:
    made = machine()
    made.cpu.features.add(name=name, policy=policy)
    return made


@pytest.mark.parametrize(
    ("policy", "name", "words"),
    [
        (CpuFeature.POLICY_FORCE, "avx512f", "host,avx512f=on"),
        (CpuFeature.POLICY_REQUIRE, "aes", "host,aes=on"),
        (CpuFeature.POLICY_REQUIRE, "sse4.1", "host,sse4.1=on"),
        (CpuFeature.POLICY_OPTIONAL, "aes", "host,aes=on"),
        (CpuFeature.POLICY_OPTIONAL, "avx512f", "host"),
        (CpuFeature.POLICY_DISABLE, "aes", "host,aes=off"),
        (CpuFeature.POLICY_FORBID, "avx512f", "host,avx512f=off"),
    ],
)
def test_features_against_what_the_accelerator_has(policy: "CpuFeature.Policy", name: str, words: str) -> None:
    assert values(translate(feature(policy, name), KNOWN), "cpu") == [words]


@pytest.mark.parametrize(
    ("policy", "name"), [(CpuFeature.POLICY_REQUIRE, "avx512f"), (CpuFeature.POLICY_FORBID, "aes")]
)
def test_features_that_cannot_be_so_are_refused(policy: "CpuFeature.Policy", name: str) -> None:
    assert refused(feature(policy, name), KNOWN) == {"cpu.features[0]"}


def test_without_facts_the_vmm_finds_out() -> None:
    assert values(translate(feature(CpuFeature.POLICY_REQUIRE), HOST), "cpu") == ["max,aes=on,enforce=on"]


def test_enlightenments_by_kvm_and_none_by_emulation() -> None:
    made = machine()
    wanted = {"relaxed": "on", "spinlocks": "8191", "vendorid": "KVM Hv", "vapic": "off", "synictimer.direct": "on"}
    made.features.hyperv.update(wanted)
    [cpu] = values(translate(made, KVM_HOST), "cpu")
    assert cpu == "host,hv-relaxed=on,hv-spinlocks=0x1fff,hv-stimer-direct=on,hv-vendor-id=KVM Hv"
    emulated = translate(made, HOST)
    assert values(emulated, "cpu") == ["max"]
    assert notes(emulated) == {"features.hyperv"}


def test_enlightenments_cannot_break_out() -> None:
    made = machine()
    made.features.hyperv["vendorid"] = "x,kvm=off"
    assert refused(made, KVM_HOST) == {"features.hyperv[vendorid]"}


def test_spin_locks() -> None:
    made = machine()
    made.features.pv_spinlocks = False
    assert values(translate(made, KVM_HOST), "cpu") == ["host,kvm-pv-unhalt=off"]
    assert not translate(made, HOST).findings
    made.features.pv_spinlocks = True
    assert notes(translate(made, HOST)) == {"features.pv_spinlocks"}


def test_huge_pages() -> None:
    made = machine()
    made.memory.page_bytes = 2 << 20
    result = translate(made, KNOWN)
    [backend] = [each for each in documents(result, "object") if each["id"] == "memory"]
    assert backend["hugetlb"] is backend["prealloc"] is True
    assert backend["hugetlbsize"] == 2 << 20
    assert "memory-backend=memory" in values(result, "machine")[0]
    assert refused(made, HOST) == {"memory.page_bytes"}
    made.memory.size_bytes += 4096
    assert refused(made, KNOWN) == {"memory.size_bytes"}


# Identity


def test_the_chassis() -> None:
    made = machine()
    made.identity.chassis_manufacturer = "Us, Inc."
    made.identity.chassis_serial = "C1"
    made.identity.chassis_sku = "K"
    made.identity.chassis_version = "2"
    made.identity.chassis_asset = "A"
    assert "type=3,manufacturer=Us,, Inc.,version=2,serial=C1,asset=A,sku=K" in values(translate(made, HOST), "smbios")


@pytest.mark.parametrize("kind", [Firmware.KIND_BIOS])
def test_serial_output_of_the_bios(kind: "Firmware.Kind") -> None:
    made = machine()
    made.boot.firmware.kind = kind
    made.boot.firmware.serial_output = True
    assert "graphics=off" in values(translate(made, HOST), "machine")[0]


REFUSALS: list[Callable[[Machine], object]] = [
    lambda made: made.cpu.dedicated.append(1),
    lambda made: setattr(made.memory, "max_bytes", (1 << 30) + 4096),
    lambda made: setattr(made.memory, "locked", True),
    lambda made: made.filesystems.add(id="f", vhost_user_handle="h"),
]


@pytest.mark.parametrize("change", REFUSALS)
def test_what_is_not_served_is_refused(change: Callable[[Machine], object]) -> None:
    made = machine()
    change(made)
    assert refused(made, KNOWN)

"""From a VMI to the machine of the HRI."""

from typing import Any

import msgspec
import pytest

from anyvisor.agent import translate
from anyvisor.agent.translate_parts import TranslateError
from anyvisor.hri.v1.machine_spec_pb2 import Disk, Display, Firmware, Input, Kernel, Lifecycle, Nic, VolumeHandle
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION
from anyvisor.planning.plan import Plan, Resources, Substitution

PLAN = Plan(
    hypervisor_class="fake",
    driver="fake.anyvisor.io",
    driver_version="1",
    hri_minor=1,
    manifest_digest="sha256:0",
    verdict="SATISFIED",
    accelerator="emulation",
    launch_mode="none",
    parameters={"a": "b"},
    resources=Resources(guest_memory_bytes=64 << 20),
)
VOLUME = VolumeHandle(layers=[VolumeHandle.Layer(handle="volume/root")], size_bytes=512)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"launchSecurity": {"sev": {}}}, "spec.domain.launchSecurity"),
    ({"devices": {"tpm": {"model": "x"}}}, "spec.domain.devices.tpm.model"),
    ({"devices": {"hostDevices": []}}, "spec.domain.devices.hostDevices"),
    ({"cpu": {"dedicatedCpuPlacement": True}}, "spec.domain.cpu.dedicatedCpuPlacement"),
    ({"cpu": {"numa": {}}}, "spec.domain.cpu.numa"),
    ({"features": {"hypervPassthrough": {}}}, "spec.domain.features.hypervPassthrough"),
    ({"chassis": {"colour": "x"}}, "spec.domain.chassis.colour"),
    ({"firmware": {"bootloader": {"efi": {"unknown": True}}}}, "spec.domain.firmware.bootloader.efi.unknown"),
    ({"devices": {"disks": [{"name": "a", "disk": {"bus": "ide"}}]}}, "spec.domain.devices.disks[0].disk.bus"),
    ({"devices": {"disks": [{"name": "b", "disk": {}}]}}, "spec.domain.devices.disks[0].name"),
    ({"devices": {"disks": [{"name": "a", "x": 1}]}}, "spec.domain.devices.disks[0].x"),
    ({"devices": {"disks": [{"name": "a"}, {"name": "a"}]}}, "spec.domain.devices"),
]


def vmi(domain: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    full = {"devices": {}, "memory": {"guest": "64Mi"}, **(domain or {})}
    return {
        "metadata": {"name": "vm", "namespace": "ns", "uid": "11111111-2222-3333-4444-555555555555"},
        "spec": {"domain": full, **spec},
    }


def test_a_small_machine():
    made = translate.machine(vmi(), PLAN, translate.Parts())
    assert made.id == "11111111-2222-3333-4444-555555555555"
    assert made.name == "ns/vm"
    assert made.accelerator == ACCELERATOR_EMULATION
    assert made.memory.size_bytes == 64 << 20
    assert (made.cpu.sockets, made.cpu.cores, made.cpu.threads) == (1, 1, 1)
    assert made.boot.firmware.kind == Firmware.KIND_BIOS
    assert [console.id for console in made.consoles] == ["serial0"]
    assert made.identity.uuid == made.id
    assert made.lifecycle.grace_seconds == 30
    assert dict(made.parameters) == {"a": "b"}


def test_disks_keep_their_order_and_their_words():
    source = vmi(
        {
            "devices": {
                "disks": [
                    {"name": "root", "disk": {"bus": "virtio"}, "serial": "S1", "cache": "none", "bootOrder": 2},
                    {"name": "seed", "cdrom": {"bus": "sata", "tray": "open"}, "errorPolicy": "enospace"},
                ],
                "interfaces": [{"name": "root", "bridge": {}, "bootOrder": 1}],
            }
        }
    )
    parts = translate.Parts({"root": VOLUME, "seed": VOLUME}, nics=[Nic(id="root")])
    made = translate.machine(source, PLAN, parts)
    root, seed = made.disks
    assert (root.id, root.bus, root.serial, root.cache) == ("disk.root", Disk.BUS_VIRTIO, "S1", Disk.CACHE_NONE)
    assert (seed.kind, seed.read_only, seed.tray_open) == (Disk.KIND_CDROM, True, True)
    assert seed.on_error == Disk.ON_ERROR_STOP_WHEN_FULL
    assert list(made.boot.order) == ["nic.root", "disk.root"]


def test_a_kernel_takes_the_place_of_firmware():
    made = translate.machine(vmi(), PLAN, translate.Parts(kernel=Kernel(kernel_handle="boot/kernel")))
    assert made.boot.kernel.kernel_handle == "boot/kernel"


def test_cpu_limits_stand_for_a_missing_topology():
    made = translate.machine(vmi({"resources": {"limits": {"cpu": "2500m"}}}), PLAN, translate.Parts())
    assert made.cpu.sockets == 3


def test_names_of_63_characters_become_ids():
    name = "d" * 63
    source = vmi({"devices": {"disks": [{"name": name, "disk": {"bus": "virtio"}, "bootOrder": 1}]}})
    made = translate.machine(source, PLAN, translate.Parts({name: VOLUME}))
    assert len(made.disks[0].id) == 63
    assert list(made.boot.order) == [made.disks[0].id]


def test_hyperv_features_are_on_off_or_a_value():
    hyperv = {
        "relaxed": {},
        "vapic": {"enabled": False},
        "spinlocks": {"spinlocks": 8191},
        "synictimer": {"direct": {"enabled": True}},
    }
    made = translate.machine(vmi({"features": {"hyperv": hyperv, "acpi": {}}}), PLAN, translate.Parts())
    assert dict(made.features.hyperv) == {
        "relaxed": "on",
        "vapic": "off",
        "spinlocks": "8191",
        "synictimer": "on",
        "synictimer.direct": "on",
    }
    assert made.features.acpi
    assert not made.features.HasField("apic")


def test_termination_on_reboot_and_a_paused_start():
    made = translate.machine(
        vmi({"rebootPolicy": "Terminate"}, startStrategy="Paused", terminationGracePeriodSeconds=0),
        PLAN,
        translate.Parts(),
    )
    assert made.lifecycle == Lifecycle(on_reboot=Lifecycle.ON_REBOOT_STOP, start_paused=True, grace_seconds=0)


def test_the_plan_substitutes_what_only_a_default_asked_for():
    plan = msgspec.structs.replace(
        PLAN,
        substitutions=(
            Substitution(field="domain.devices.autoattachGraphicsDevice", to=False),
            Substitution(field="spec.domain.devices.disks[0].disk.bus", to="virtio"),
        ),
    )
    source = vmi({"devices": {"disks": [{"name": "root", "disk": {"bus": "sata"}}]}})
    made = translate.machine(source, plan, translate.Parts({"root": VOLUME}))
    assert not made.displays
    assert made.disks[0].bus == Disk.BUS_VIRTIO
    assert source["spec"]["domain"]["devices"]["disks"][0]["disk"]["bus"] == "sata"


@pytest.mark.parametrize(("domain", "field"), REFUSED)
def test_what_cannot_be_told_is_refused_with_its_path(domain: dict[str, Any], field: str):
    with pytest.raises(TranslateError) as raised:
        translate.machine(vmi(domain), PLAN, translate.Parts({"a": VOLUME}))
    assert raised.value.field == field


def test_a_guest_without_memory_is_refused():
    plan = msgspec.structs.replace(PLAN, resources=Resources(guest_memory_bytes=0))
    with pytest.raises(TranslateError, match="no memory"):
        translate.machine(vmi({"memory": {"guest": "0"}}), plan, translate.Parts())


@pytest.mark.parametrize(
    ("devices", "displays"),
    [
        ({}, [Display(id="display0", heads=1)]),
        ({"autoattachGraphicsDevice": True}, [Display(id="display0", heads=1)]),
        ({"video": {"type": "virtio"}}, [Display(id="display0", model="virtio", heads=1)]),
        ({"autoattachGraphicsDevice": False}, []),
    ],
)
def test_displays(devices: dict[str, Any], displays: list[Display]):
    assert list(translate.machine(vmi({"devices": devices}), PLAN, translate.Parts()).displays) == displays


def test_tablets():
    inputs = [{"name": "pen", "type": "tablet", "bus": "virtio"}]
    made = translate.machine(vmi({"devices": {"inputs": inputs}}), PLAN, translate.Parts())
    [tablet] = [device.input for device in made.devices if device.WhichOneof("kind") == "input"]
    assert tablet == Input(type="tablet", bus="virtio")

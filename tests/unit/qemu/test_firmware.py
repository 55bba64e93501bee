"""UEFI firmware: found by its descriptors, put into flash, and missed with a sentence."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anyvisor.drivers.qemu import firmware
from anyvisor.drivers.qemu.firmware import Uefi
from anyvisor.drivers.qemu.translate import Translation, translate
from anyvisor.drivers.qemu.translate.host import Firmware as HostFirmware
from anyvisor.hri.errors import Refused
from anyvisor.hri.v1.machine_spec_pb2 import Firmware, Machine
from tests.unit.qemu.test_translate import HOST, documents, machine, refused, values

FIRM = replace(HOST, uefi=HostFirmware("/fw/CODE.fd", b"plain"), uefi_secure=HostFirmware("/fw/SECURE.fd", b"keys"))
SECURE = ["secure-boot", "enrolled-keys", "requires-smm"]


def describe(directory: Path, name: str, features: list[str], **changes: Any) -> Uefi:
    directory.mkdir(exist_ok=True)
    code, template = directory / f"{name}.code", directory / f"{name}.vars"
    code.write_bytes(b"code")
    template.write_bytes(b"variables of " + name.encode())
    mapping = {
        "device": "flash",
        "executable": {"filename": str(code), "format": "raw"},
        "nvram-template": {"filename": str(template), "format": "raw"},
    }
    descriptor = {
        "description": name,
        "interface-types": ["uefi"],
        "mapping": mapping,
        "targets": [{"architecture": "x86_64", "machines": ["pc-q35-*"]}],
        "features": features,
        "tags": [],
    }
    (directory / f"{name}.json").write_text(json.dumps(descriptor | changes))
    return Uefi(str(code), str(template))


def test_the_first_descriptor_of_each_kind_wins(tmp_path: Path) -> None:
    secure = describe(tmp_path, "40-secure", [*SECURE, "verbose-dynamic"])
    describe(tmp_path, "45-secure", SECURE)
    describe(tmp_path, "50-without-keys", ["secure-boot", "requires-smm"])
    plain = describe(tmp_path, "60-plain", ["acpi-s3"])
    assert firmware.find([tmp_path]) == (plain, secure)
    assert firmware.problems(plain, secure) == {}


def test_a_later_directory_replaces_and_hides(tmp_path: Path) -> None:
    describe(tmp_path / "a", "60-plain", [])
    own = describe(tmp_path / "b", "60-plain", [])
    describe(tmp_path / "a", "40-secure", SECURE)
    (tmp_path / "b" / "40-secure.json").write_text("")
    assert firmware.find([tmp_path / "a", tmp_path / "b"]) == (own, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"interface-types": ["bios"]},
        {"mapping": {"device": "memory", "filename": "/x"}},
        {"targets": [{"architecture": "aarch64", "machines": ["virt-*"]}]},
        {"targets": "none"},
    ],
)
def test_what_does_not_fit_is_passed_over(tmp_path: Path, changes: dict[str, Any]) -> None:
    describe(tmp_path, "60-plain", [], **changes)
    assert firmware.find([tmp_path]) == (None, None)


def test_missing_firmware_is_told_with_the_remedy() -> None:
    told = firmware.problems(None, None)
    assert set(told) == {"boot.uefi", "boot.uefi.secure"}
    assert all(text.endswith(": apt-get install ovmf") for text in told.values())


def test_templates_are_read_whole_or_refused(tmp_path: Path) -> None:
    found = describe(tmp_path, "60-plain", [])
    assert firmware.read_template(found) == b"variables of 60-plain"
    Path(found.template).write_bytes(b"")
    with pytest.raises(OSError, match="reinstall"):
        firmware.read_template(found)


def board(result: Translation) -> list[str]:
    return values(result, "machine")[0].split(",")


def uefi_machine(*, secure: bool = False, handle: str = "") -> Machine:
    made = machine()
    made.boot.firmware.kind = Firmware.KIND_UEFI
    made.boot.firmware.secure_boot = secure
    made.boot.firmware.variables_handle = handle
    return made


def test_code_is_read_only_and_variables_are_the_machines_own() -> None:
    result = translate(uefi_machine(handle="state/variables"), FIRM)
    assert {"pflash0=firmware", "pflash1=variables", "smm=off"} <= set(board(result))
    nodes = {each["node-name"]: each for each in documents(result, "blockdev")}
    assert nodes["firmware-f"]["filename"] == "/fw/CODE.fd"
    assert nodes["firmware-f"]["read-only"] is nodes["firmware"]["read-only"] is True
    assert nodes["variables-f"]["filename"].startswith("/dev/fdset/")
    assert nodes["variables"]["read-only"] is False
    assert [(seed.handle, seed.content) for seed in result.launch.seeds] == [("state/variables", b"plain")]
    assert "state/variables" in {slot.handle for slot in result.launch.descriptors}
    assert not any("secure" in text for text in values(result, "global"))


def test_variables_that_are_not_kept_are_seeded_all_the_same() -> None:
    result = translate(uefi_machine(), FIRM)
    [seed] = result.launch.seeds
    assert seed.handle in {slot.handle for slot in result.launch.descriptors}


def test_secure_boot_guards_its_variables() -> None:
    result = translate(uefi_machine(secure=True), FIRM)
    assert "smm=on" in board(result)
    assert "driver=cfi.pflash01,property=secure,value=on" in values(result, "global")
    assert result.launch.seeds[0].content == b"keys"


def test_a_given_kernel_is_started_by_the_firmware_that_was_asked_for() -> None:
    made = machine()
    made.boot.kernel.kernel_handle = "kernel"
    made.boot.kernel.firmware.kind = Firmware.KIND_UEFI
    result = translate(made, FIRM)
    assert "pflash0=firmware" in board(result)
    assert not values(result, "bios")
    assert values(result, "kernel")


@pytest.mark.parametrize("secure", [False, True])
def test_missing_firmware_refuses_the_machine(secure: bool) -> None:
    assert refused(uefi_machine(secure=secure)) == {"boot.firmware.kind"}
    with pytest.raises(Refused, match="apt-get install ovmf"):
        translate(uefi_machine(secure=secure), HOST)


def test_serial_output_is_the_biosses_own() -> None:
    made = uefi_machine()
    made.boot.firmware.serial_output = True
    assert refused(made, FIRM) == {"boot.firmware.serial_output"}

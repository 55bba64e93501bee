"""Where the program is looked for, and which versions will do."""

from pathlib import Path

import pytest

from anyvisor.drivers.cloud_hypervisor import facts, versions
from anyvisor.hri.errors import VmmFailed


def test_program_as_configured_then_by_environment_then_on_path(tmp_path: Path) -> None:
    program = tmp_path / "cloud-hypervisor"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = {"PATH": str(tmp_path)}
    named = {facts.BINARY_VARIABLE: "/named", **path}
    assert facts.binary_path("/configured", named) == "/configured"
    assert facts.binary_path("", named) == "/named"
    assert facts.binary_path("", path) == str(program)
    assert facts.binary_path("", {"PATH": "/nowhere"}) == ""


def test_firmware_by_environment(tmp_path: Path) -> None:
    firmware = tmp_path / "CLOUDHV.fd"
    assert facts.firmware_path({facts.FIRMWARE_VARIABLE: str(firmware)}) != str(firmware)
    firmware.touch()
    assert facts.firmware_path({facts.FIRMWARE_VARIABLE: str(firmware)}) == str(firmware)


async def test_program_that_is_not_there(tmp_path: Path) -> None:
    cache = tmp_path / "facts.json"
    found = await facts.find("", "", cache)
    assert (found.installed, found.version) == (False, "")
    assert "not on PATH" in found.problem
    assert facts.BINARY_VARIABLE in found.problem
    assert not cache.exists()  # trouble is looked at anew
    assert "/nowhere is not there" in (await facts.find("/nowhere", "", None)).problem


@pytest.mark.parametrize(("body", "said"), [("exit 3", "status 3"), ("echo hello", "not understood")])
async def test_program_of_another_kind(tmp_path: Path, body: str, said: str) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    found = await facts.find(str(program), "", None)
    assert found.installed
    assert said in found.problem


async def test_facts_are_kept_for_one_binary(tmp_path: Path) -> None:
    program, cache = tmp_path / "program", tmp_path / "facts.json"
    program.write_text("#!/bin/sh\necho cloud-hypervisor v54.1\n")
    program.chmod(0o755)
    first = await facts.find(str(program), "", cache)
    assert (first.version, first.problem) == ("54.1", "")
    program.unlink()
    program.write_text("#!/bin/sh\necho cloud-hypervisor v55.0\n")
    program.chmod(0o755)
    assert (await facts.find(str(program), "", cache)).version == "55.0"
    cache.write_text("{")
    assert (await facts.find(str(program), "", cache)).version == "55.0"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("53.0.0", (53, 0)),
        ("v53.0-dirty", (53, 0)),
        ("v53.0-12-g9ed824d6", (53, 0)),
        ("54.1", (54, 1)),
        ("", None),
        ("latest", None),
        ("53", None),
    ],
)
def test_version(text: str, parsed: tuple[int, int] | None) -> None:
    assert versions.parse(text) == parsed


def test_floor() -> None:
    versions.check_version("53.0.0")
    with pytest.raises(VmmFailed, match=r"v52\.3 is too old; install v53\.0 or later"):
        versions.check_version("52.3.0")
    with pytest.raises(VmmFailed, match="not understood"):
        versions.check_version("unknown")

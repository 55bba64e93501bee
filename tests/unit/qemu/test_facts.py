"""Facts of a node: found once per boot and binary, and trouble is a fact too."""

import asyncio
from pathlib import Path

import pytest

from anyvisor.drivers.qemu import facts
from anyvisor.drivers.qemu.facts import Facts
from anyvisor.drivers.qemu.service import QemuDriver
from anyvisor.hri.errors import VmmFailed
from anyvisor.hri.kit import MachineContext
from anyvisor.hri.kit.events import EventLog
from anyvisor.hri.kit.facts import store
from anyvisor.hri.v1.machine_pb2 import PrepareRequest
from anyvisor.hri.v1.node_pb2 import NodeFacts
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def test_missing_emulator_is_told_with_the_remedy(tmp_path: Path) -> None:
    found = await facts.find(str(tmp_path / "nothing"), None)
    assert not found.installed
    assert "install QEMU" in found.problem


async def test_emulator_that_dies_at_once(tmp_path: Path) -> None:
    found = await facts.find(program(tmp_path / "broken", "exit 1"), tmp_path / "facts.json")
    assert found.installed
    assert "does not answer" in found.problem
    assert not (tmp_path / "facts.json").exists(), "trouble is looked at again"


async def test_emulator_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "PROBE_SECONDS", 0.3)
    found = await facts.find(program(tmp_path / "hanging", "exec sleep 60"), None)
    assert "does not answer" in found.problem


async def test_facts_are_kept_for_one_boot_and_binary(tmp_path: Path) -> None:
    emulator, cache = program(tmp_path / "emulator", "exit 1"), tmp_path / "facts.json"
    known = Facts(emulator, version="9.9.9", installed=True)
    store(cache, facts.key(emulator), known)
    assert await facts.find(emulator, cache) == known
    program(tmp_path / "emulator", "exit 1 # another binary")
    assert (await facts.find(emulator, cache)).version == ""


@pytest.mark.parametrize("content", [b"", b"{}", b'{"key": 1}', b"\xff"])
async def test_a_damaged_cache_is_no_cache(tmp_path: Path, content: bytes) -> None:
    cache = tmp_path / "facts.json"
    cache.write_bytes(content)
    assert (await facts.find(str(tmp_path / "nothing"), cache)).problem


@pytest.mark.parametrize(
    ("runs", "accelerators"), [(True, (ACCELERATOR_KVM, ACCELERATOR_EMULATION)), (False, (ACCELERATOR_EMULATION,))]
)
def test_kvm_counts_only_if_a_guest_ran_on_it(runs: bool, accelerators: tuple[int, ...]) -> None:
    assert Facts("x", kvm_opens=True, kvm_runs=runs).accelerators == accelerators


async def test_driver_without_its_vmm_says_so_everywhere(tmp_path: Path) -> None:
    driver = QemuDriver(str(tmp_path / "nothing"))
    [condition] = await driver.probe()
    assert not condition.status
    stream = driver.node_facts()
    first = await anext(stream)
    assert first.health == NodeFacts.HEALTH_UNDETECTED
    assert {"accel.kvm", "change.cpu"} <= set(first.withdrawn_capabilities)
    assert set(first.withdrawal_reasons) == set(first.withdrawn_capabilities)
    await stream.aclose()
    with pytest.raises(VmmFailed, match="install QEMU"):
        await driver.prepare(MachineContext("m1", 1, EventLog("boot")), PrepareRequest())


async def test_node_facts_follow_a_binary_that_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyvisor.hri.kit.facts.RECHECK_SECONDS", 0.01)
    emulator = tmp_path / "emulator"
    stream = QemuDriver(str(emulator)).node_facts()
    assert (await anext(stream)).health == NodeFacts.HEALTH_UNDETECTED
    program(emulator, "exit 1")
    assert (await asyncio.wait_for(anext(stream), 10)).health == NodeFacts.HEALTH_UNHEALTHY
    await stream.aclose()

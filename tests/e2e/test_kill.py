"""kill -9 of everything of ours, alone and together, at every stage: no guest is harmed, none runs twice."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import BIN, Instance, eventually, tiny_vm

COMPONENTS = ["control", "agent-node-1", "driver-qemu-node-1", "zygote"]


def keeps_counting(instance: Instance, name: str, before: int) -> None:
    eventually(lambda: instance.counter(name) > before, 30, lambda: instance.story(name))


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_alone_while_a_guest_runs(instance: Instance, component: str) -> None:
    instance.apply(tiny_vm("a"))
    vmi = instance.wait_phase("a")
    before, vmm = instance.counter("a"), instance.vmm_pids()
    assert len(vmm) == 1
    instance.kill(component)
    assert instance.vmm_pids() == vmm
    instance.up()
    keeps_counting(instance, "a", before)
    assert instance.vmm_pids() == vmm
    assert instance.wait_phase("a")["metadata"]["uid"] == vmi["metadata"]["uid"]
    instance.cli("stop", "a", "--wait")
    assert instance.vmm_pids() == []


def test_all_at_once_while_a_guest_runs(instance: Instance) -> None:
    instance.apply(tiny_vm("a"))
    vmi = instance.wait_phase("a")
    before, vmm = instance.counter("a"), instance.vmm_pids()
    for _ in range(3):
        instance.kill()
        assert instance.vmm_pids() == vmm
        instance.up()
    keeps_counting(instance, "a", before)
    assert instance.vmm_pids() == vmm
    assert instance.wait_phase("a")["metadata"]["uid"] == vmi["metadata"]["uid"]


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.4, 0.8])
def test_all_at_once_in_the_middle_of_a_start(instance: Instance, delay: float) -> None:
    instance.apply(tiny_vm("a"))
    time.sleep(delay)
    instance.kill()
    instance.up()
    instance.wait_phase("a")
    assert instance.counter("a") > 0
    assert len(instance.vmm_pids()) == 1


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_alone_in_the_middle_of_a_start(instance: Instance, component: str) -> None:
    instance.apply(tiny_vm("a"))
    time.sleep(0.15)
    instance.kill(component)
    instance.up()
    instance.wait_phase("a")
    assert instance.counter("a") > 0
    assert len(instance.vmm_pids()) == 1


@pytest.mark.parametrize("names", [[name] for name in COMPONENTS] + [[]], ids=[*COMPONENTS, "all"])
def test_in_the_middle_of_a_stop(instance: Instance, names: list[str]) -> None:
    instance.apply(tiny_vm("a"))
    instance.wait_phase("a")
    instance.counter("a")
    instance.kubectl("delete", "vm", "a", "--wait=false")
    time.sleep(0.05)
    instance.kill(*names)
    instance.up()
    instance.wait_gone("vm", "a")
    instance.wait_gone("vmi", "a")
    eventually(lambda: instance.vmm_pids() == [], 10)
    assert instance.items("pods") == []


def test_a_host_reboot_with_reused_pids_harms_nobody(instance: Instance) -> None:
    instance.apply(tiny_vm("a"))
    first = instance.wait_phase("a")
    instance.kill()
    for pid in instance.vmm_pids():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: instance.vmm_pids() == [], 10)
    innocent = subprocess.Popen(["sleep", "600"])
    try:
        changed = pretend_reboot(instance.data_dir / "nodes", innocent.pid)
        assert changed > 0
        instance.up()
        eventually(
            lambda: (instance.get("vmi", "a") or first)["metadata"]["uid"] != first["metadata"]["uid"],
            60,
            lambda: instance.story("a"),
        )
        instance.wait_phase("a")
        assert len(instance.vmm_pids()) == 1
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def pretend_reboot(nodes: Path, pid: int) -> int:
    """Make every record say that it was written before a reboot, by a process whose pid another one has now."""
    changed = 0
    for path in nodes.rglob("*.json"):
        record = json.loads(path.read_text())
        keys = {key.lower().replace("_", ""): key for key in record}
        if "bootid" not in keys:
            continue
        record[keys["bootid"]] = "00000000-0000-0000-0000-000000000000"
        if "pid" in keys:
            record[keys["pid"]] = pid
        path.write_text(json.dumps(record))
        changed += 1
    return changed


def test_deleting_ends_when_the_node_is_gone(instance: Instance) -> None:
    instance.apply(tiny_vm("a"))
    instance.wait_phase("a")
    instance.kill("driver-qemu-node-1")
    instance.kubectl("delete", "vm", "a", "--wait=false")
    instance.wait_gone("vmi", "a")
    assert instance.vmm_pids() == []


def test_down_and_up_leave_guests_alone(instance: Instance) -> None:
    instance.apply(tiny_vm("a"))
    instance.wait_phase("a")
    before, vmm = instance.counter("a"), instance.vmm_pids()
    instance.cli("down")
    assert instance.vmm_pids() == vmm
    instance.up()
    keeps_counting(instance, "a", before)
    assert instance.vmm_pids() == vmm


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_the_end_of_up_in_the_foreground_ends_no_guest(instance: Instance, number: signal.Signals) -> None:
    instance.apply(tiny_vm("a"))
    instance.wait_phase("a")
    before, vmm = instance.counter("a"), instance.vmm_pids()
    instance.cli("down")
    command = [str(BIN / "anyvisor"), "--data-dir", str(instance.data_dir), "up"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert "is ready" in process.stdout.readline()
    process.send_signal(number)
    assert "VMs go on" in process.communicate(timeout=30)[0]
    assert process.returncode == 0
    assert instance.vmm_pids() == vmm
    instance.up()
    keeps_counting(instance, "a", before)
    assert instance.vmm_pids() == vmm

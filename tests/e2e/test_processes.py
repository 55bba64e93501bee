"""Nothing of ours stays resident per VM, and nothing is left behind."""

import os
from pathlib import Path

from tests.e2e.conftest import Instance, eventually, tiny_vm


def session_processes(instance: Instance) -> set[int]:
    """Every process that belongs to the instance: ours, and what we started."""
    ours = set(instance.processes().values())
    found = set(instance.vmm_pids())
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if int(path.name) in ours or parent in ours:
            found.add(int(path.name))
    return found


def test_a_second_vm_adds_its_vmm_and_nothing_else(instance: Instance) -> None:
    instance.apply(tiny_vm("one"))
    instance.wait_phase("one")
    instance.counter("one")
    with_one = session_processes(instance)
    instance.apply(tiny_vm("two"))
    instance.wait_phase("two")
    instance.counter("two")
    with_two = session_processes(instance)
    new = with_two - with_one
    assert len(new) == 1
    assert new <= set(instance.vmm_pids())


def test_nothing_is_left_behind(instance: Instance) -> None:
    identity = instance.identity
    instance.apply(tiny_vm("one"))
    instance.wait_phase("one")
    instance.kubectl("delete", "vm", "one")
    instance.cli("down")
    eventually(lambda: instance.vmm_pids() == [], 10)
    assert not Path(f"/run/anyvisor/{identity}").exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/anyvisor/{identity}*"))
    mounts = Path("/proc/self/mountinfo").read_text()
    assert identity not in mounts
    assert str(instance.data_dir) not in mounts
    machines = [path for path in (instance.data_dir / "nodes").rglob("machines/*") if path.is_dir()]
    assert machines == []
    assert all(not name.startswith(f"av{identity}") for name in os.listdir("/sys/class/net"))

"""Many VMs of the fake driver, with all objects and a launcher each, to Running: what all of ours costs but no VMM.

`ANYVISOR_BENCH_FAKE_VMS` sets how many; the aim is 100 a second.
"""

import json
import os
import time

from tests.bench.measure import proportional_memory, report
from tests.bench.test_many import cpu, revision
from tests.e2e.conftest import Instance, end, eventually, make_instance

VMS = int(os.environ.get("ANYVISOR_BENCH_FAKE_VMS", "100"))
NODES = max(VMS // 100, 1)
"""A node takes 110 pods, as in Kubernetes."""
IDLE_SECONDS = 10


def fake_vm(name: str) -> dict[str, object]:
    domain = {
        "memory": {"guest": "4Mi"},
        "resources": {"requests": {"cpu": "1m"}},
        "devices": {"autoattachPodInterface": False, "autoattachGraphicsDevice": False},
    }
    spec = {"hypervisor": "fake", "terminationGracePeriodSeconds": 0, "domain": domain}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": "Always", "template": {"spec": spec}},
    }


def running(instance: Instance) -> int:
    return instance.kubectl("get", "vmi", "-o", "jsonpath={.items[*].status.phase}").split().count("Running")


def shares(instance: Instance, before: dict[str, float]) -> str:
    """Processor time a VM of each process, in milliseconds."""
    after = each_cpu(instance)
    return ", ".join(f"{name} {(seconds - before.get(name, 0.0)) / VMS * 1000:.1f}" for name, seconds in after.items())


def each_cpu(instance: Instance) -> dict[str, float]:
    from tests.bench.measure import cpu_seconds

    found: dict[str, float] = {}
    for name, pid in instance.processes().items():
        kind = name.partition("-node-")[0]
        found[kind] = found.get(kind, 0.0) + cpu_seconds([pid])
    return found


def test_fake_machines_at_once() -> None:
    instance = make_instance()
    instance.up("--drivers", "fake", "--nodes", str(NODES))
    eventually(lambda: len(instance.items("nodes")) == NODES, 60)
    time.sleep(5)
    names = [f"f{number}" for number in range(VMS)]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [fake_vm(name) for name in names]})
    memory = proportional_memory(instance.processes().values())
    shared = each_cpu(instance)
    before, used, begun = revision(instance), cpu(instance), time.perf_counter()
    instance.kubectl("create", "-f", "-", stdin=text, seconds=600)
    created = time.perf_counter() - begun
    eventually(lambda: running(instance) == VMS, 600, lambda: f"{running(instance)} of {VMS} run")
    seconds = time.perf_counter() - begun
    used = cpu(instance) - used
    time.sleep(IDLE_SECONDS)
    writes = revision(instance) - before
    events = len(instance.items("events"))
    grown = proportional_memory(instance.processes().values()) - memory
    driver = [pid for name, pid in instance.processes().items() if name.startswith("driver-")]
    report(
        f"{VMS} fake VMs on {NODES} nodes",
        [
            f"create to all Running {seconds:6.1f} s, {VMS / seconds:.1f} a second (create alone {created:.1f} s)",
            f"CPU of our processes {used / VMS * 1000:6.1f} ms a VM: {shares(instance, shared)}",
            f"writes {writes / VMS:6.1f} a VM, of which {events / VMS:.1f} are events (repeats of one count once)",
            f"PSS {memory:6.1f} MiB with 0 VMs, {grown / VMS * 1024:.0f} KiB a VM",
            f"drivers {proportional_memory(driver) / NODES:6.1f} MiB each, with {VMS // NODES} machines",
        ],
    )
    assert running(instance) == VMS
    end(instance)

"""Many VMs created at once: time, processor time and writes a VM, what they cost when idle, and forced deletion.

`ANYVISOR_BENCH_VMS` sets how many.
"""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.bench.measure import cpu_seconds, milliseconds, proportional_memory, report, row
from tests.e2e.conftest import Instance, end, eventually, make_instance, tiny_vm

VMS = int(os.environ.get("ANYVISOR_BENCH_VMS", "50"))
IDLE_SECONDS = 20
FORCED = 5


def revision(instance: Instance) -> int:
    """The server's newest resourceVersion: each write raises it by one."""
    return int(json.loads(instance.kubectl("get", "--raw", "/api/v1/pods?limit=1"))["metadata"]["resourceVersion"])


def cpu(instance: Instance) -> float:
    return cpu_seconds(instance.processes().values())


def idle(instance: Instance) -> tuple[float, float]:
    """Milliseconds of processor time a second, and PSS in MiB, of all our processes."""
    pids = list(instance.processes().values())
    before = cpu_seconds(pids)
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(pids) - before) / IDLE_SECONDS * 1000, proportional_memory(pids)


def hush(instance: Instance) -> None:
    """Stop the guests' lines, ten a second each: an idle machine has an idle guest."""

    def one(number: int) -> str:
        return instance.cli("console", f"v{number}", "--seconds", "4", stdin="quiet\n", check=False)

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(one, range(VMS)))
    time.sleep(2)


def all_run(instance: Instance) -> bool:
    time.sleep(1)  # each question starts a kubectl, whose processor time the guests need
    phases = instance.kubectl("get", "vmi", "-o", "jsonpath={.items[*].status.phase}").split()
    return phases == ["Running"] * VMS


@pytest.fixture
def instance() -> Iterator[Instance]:
    """An instance that ends with the benchmark, also with one that fails."""
    made = make_instance()
    made.up()
    yield made
    end(made)


def small_vm(name: str) -> dict[str, Any]:
    """A VM of which many fit: by default, each asks for a tenth of a processor."""
    vm = tiny_vm(name)
    vm["spec"]["template"]["spec"]["domain"]["resources"] = {"requests": {"cpu": "10m"}}
    return vm


@pytest.mark.timeout(1800)
def test_many_at_once(instance: Instance) -> None:
    eventually(lambda: "node-1" in instance.kubectl("get", "nodes", "-o", "name"), 60)
    time.sleep(5)
    idle_empty, memory_empty = idle(instance)
    listed = {"apiVersion": "v1", "kind": "List", "items": [small_vm(f"v{number}") for number in range(VMS)]}
    text, before, used, begun = json.dumps(listed), revision(instance), cpu(instance), time.perf_counter()
    instance.kubectl("create", "-f", "-", stdin=text, seconds=600)
    eventually(lambda: all_run(instance), 600, lambda: instance.kubectl("get", "vmi"))
    seconds = time.perf_counter() - begun
    used = cpu(instance) - used
    time.sleep(5)
    writes = revision(instance) - before
    events = len(instance.items("events"))
    talking, _ = idle(instance)
    hush(instance)
    idle_full, memory_full = idle(instance)
    forced: list[float] = []
    for number in range(min(FORCED, VMS)):
        start = time.perf_counter()
        instance.kubectl("delete", "vmi", f"v{number}", "--grace-period=0", "--force", "--wait=false")
        forced.append(milliseconds(start))
    report(
        f"{VMS} VMs at once",
        [
            f"create to all Running {seconds:6.1f} s, {seconds / VMS * 1000:.0f} ms a VM (guests included)",
            f"CPU of our processes {used / VMS * 1000:6.1f} ms a VM, the test's own questions included",
            f"writes {writes / VMS:6.1f} a VM, of which {events / VMS:.1f} are events (repeats of one count once)",
            f"idle {idle_empty:6.1f} ms CPU/s with 0 VMs, {idle_full:.1f} with {VMS}; "
            f"{talking:.1f} while their guests write {10 * VMS} lines a second on their consoles",
            f"PSS {memory_empty:6.1f} MiB with 0 VMs, {memory_full:.1f} with {VMS}: "
            f"{(memory_full - memory_empty) / VMS * 1024:.0f} KiB a VM",
            row("kubectl delete vmi --force, whole command", forced),
        ],
    )

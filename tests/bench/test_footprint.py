"""Start until the API answers; memory and processor time of all our processes with 0 and 20 VMs."""

import json
import shutil
import subprocess
import time

from tests.bench.measure import cpu_seconds, milliseconds, proportional_memory, report, row
from tests.e2e.conftest import Instance, end, eventually, make_instance, tiny_vm

VMS = 20
STARTS = 5
IDLE_SECONDS = 20


def processes(instance: Instance) -> dict[str, int]:
    return instance.processes()


def idle(instance: Instance) -> float:
    """Milliseconds of processor time a second of all our processes, with nothing to do."""
    pids = list(processes(instance).values())
    before = cpu_seconds(pids)
    time.sleep(IDLE_SECONDS)
    return (cpu_seconds(pids) - before) / IDLE_SECONDS * 1000


def memory(instance: Instance) -> tuple[float, str]:
    """PSS of all our processes in MiB, and by process."""
    each = {name: proportional_memory([pid]) for name, pid in processes(instance).items()}
    words = ", ".join(f"{name} {size:.1f}" for name, size in each.items())
    return sum(each.values()), words


def test_start_and_footprint() -> None:
    instance = make_instance()
    first = timed_up(instance)
    again: list[float] = []
    for _ in range(STARTS):
        instance.cli("down")
        again.append(timed_up(instance))
    eventually(lambda: "node-1" in instance.kubectl("get", "nodes", "-o", "name"), 30)
    time.sleep(5)
    empty, empty_words = memory(instance)
    idle_empty = idle(instance)
    for number in range(VMS):
        instance.apply(tiny_vm(f"v{number}"))
    for number in range(VMS):
        instance.wait_phase(f"v{number}", seconds=180)
    time.sleep(5)
    full, full_words = memory(instance)
    idle_full = idle(instance)
    report(
        "start and footprint",
        [
            f"first `up --detach` (makes certificates and database) {first:8.0f} ms",
            row("`up --detach` until the API answers", again),
            f"PSS of all our processes, 0 VMs {empty:6.1f} MiB ({empty_words})",
            f"PSS of all our processes, {VMS} VMs {full:5.1f} MiB ({full_words})",
            f"per VM {(full - empty) / VMS * 1024:.0f} KiB",
            f"idle: {idle_empty:.1f} ms CPU/s with 0 VMs, {idle_full:.1f} with {VMS}",
        ],
    )
    assert len(instance.vmm_pids()) == VMS
    end(instance)


def timed_up(instance: Instance) -> float:
    start = time.perf_counter()
    instance.up()
    return milliseconds(start)


def test_command_line() -> None:
    """`anyvisor kubectl version --client` and `anyvisor version` as whole processes."""
    program = shutil.which("anyvisor") or ".venv/bin/anyvisor"
    series: list[float] = []
    for _ in range(15):
        start = time.perf_counter()
        text = subprocess.run([program, "version", "-o", "json"], capture_output=True, text=True, check=True).stdout
        series.append(milliseconds(start))
        assert json.loads(text)["version"]
    report("command line", [row("anyvisor version", series)])

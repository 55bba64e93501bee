"""`python -m tests.cluster.scale [--vms 1000] [--nodes 20]`: many machines on the official control plane.

Real agents over the fake driver, a played kubelet, the official scheduler and controllers: what is counted is what the
product asks of the API server and what it costs a machine, from the first creation to the last one running.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping

from tests.bench.measure import cpu_seconds, proportional_memory
from tests.cluster.api.objects import audited, vm
from tests.cluster.installation import NAMESPACE, Installation
from tests.cluster.kit.build import API, build
from tests.cluster.kit.control_plane import ControlPlane, control_plane
from tests.cluster.simulation import SimulatedNodes

ACCOUNTS = f"system:serviceaccount:{NAMESPACE}:anyvisor-"
OURS = ("controller", "gateway", "agents")
THEIRS = ("apiserver", "etcd", "scheduler", "controller-manager", "kubelet")
BATCH = 100
READS = ("get", "list", "watch")
LONGEST_SECONDS = 1800
IDLE_SECONDS = 20


def machine(number: int) -> dict[str, object]:
    """A VM whose instance has about six kilobytes, as those of users have."""
    made = vm(f"vm-{number:04}", hypervisor="fake", run="Always")
    notes = {f"example.org/note-{index}": "n" * 200 for index in range(15)}
    made["spec"]["template"]["metadata"] = {"annotations": notes, "labels": {"app": f"app-{number % 10}"}}
    return made


def running(plane: ControlPlane) -> int:
    """How many instances run."""
    return plane.kubectl("get", "vmi", "-o", "jsonpath={.items[*].status.phase}", seconds=300).split().count("Running")


def used(plane: ControlPlane) -> dict[str, float]:
    """CPU seconds of each process so far."""
    return {part: cpu_seconds([plane.processes.pid(part)]) for part in (*OURS, *THEIRS)}


def since(plane: ControlPlane, before: Mapping[str, float]) -> dict[str, float]:
    """CPU seconds of each process since then."""
    return {part: seconds - before[part] for part, seconds in used(plane).items()}


def memory(plane: ControlPlane) -> dict[str, float]:
    """PSS of each process in MiB."""
    return {part: proportional_memory([plane.processes.pid(part)]) for part in (*OURS, *THEIRS)}


def calls(plane: ControlPlane) -> Counter[tuple[str, str, str]]:
    """Component, verb and resource of everything that our components asked so far."""
    return Counter(
        (
            entry["user"]["username"].removeprefix(ACCOUNTS),
            entry["verb"],
            "/".join(
                filter(
                    None, (entry.get("objectRef", {}).get("resource"), entry.get("objectRef", {}).get("subresource"))
                )
            ),
        )
        for entry in audited(plane)
        if entry["user"]["username"].startswith(ACCOUNTS)
    )


def table(title: str, rows: Mapping[str, str]) -> None:
    """Print one block."""
    print(f"\n{title}")
    for name, value in rows.items():
        print(f"  {name:<44}{value}")
    sys.stdout.flush()


def measure(plane: ControlPlane, vms: int, nodes: int) -> None:
    """Create all machines, wait until they run, and tell what it took; then what they cost when nothing happens."""
    Installation(plane).install()
    # The scheduler packs equal pods onto one node while it can.
    SimulatedNodes(plane, [f"node-{number:03}" for number in range(nodes)], pods=vms // nodes + 5).up()
    empty, before, asked, begun = memory(plane), used(plane), calls(plane), time.monotonic()
    for first in range(0, vms, BATCH):
        batch = [machine(number) for number in range(first, min(first + BATCH, vms))]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": batch})
        plane.kubectl("create", "-f", "-", stdin=text, seconds=600)
    created = time.monotonic() - begun
    while (count := running(plane)) < vms:
        if time.monotonic() - begun > LONGEST_SECONDS:
            raise SystemExit(f"{count} of {vms} run after {LONGEST_SECONDS} s")
        time.sleep(1)
    seconds, spent, full = time.monotonic() - begun, since(plane, before), memory(plane)
    time.sleep(5)  # until the last events are written
    made = calls(plane) - asked
    table(
        f"{vms} VMs on {nodes} nodes",
        {
            "all created after": f"{created:.0f} s",
            "all Running after": f"{seconds:.0f} s, {vms / seconds:.1f} a second",
            **{f"CPU of {part}, ms a VM": f"{spent[part] / vms * 1000:.1f}" for part in (*OURS, *THEIRS)},
            **{
                f"PSS of {part}, MiB empty -> full": f"{empty[part]:.0f} -> {full[part]:.0f}"
                for part in (*OURS, *THEIRS)
            },
        },
    )
    told = {
        f"{who} {verb} {what}": f"{count / vms:.2f}"
        for (who, verb, what), count in made.most_common()
        if count > vms / 50
    }
    writes = sum(count for (_, verb, what), count in made.items() if verb not in READS and what != "events")
    table(
        "API calls of ours a VM",
        {**told, "all": f"{made.total() / vms:.2f}", "writes, events apart": f"{writes / vms:.2f}"},
    )
    before = used(plane)
    time.sleep(IDLE_SECONDS)
    idle = since(plane, before)
    table(
        "when nothing happens",
        {f"CPU of {part}, ms a second": f"{idle[part] / IDLE_SECONDS * 1000:.0f}" for part in (*OURS, *THEIRS)},
    )
    latency(plane)
    begun = time.monotonic()
    plane.kubectl("delete", "vm", "--all", "--wait=false", seconds=600)
    while plane.kubectl("get", "vm,pods", "-o", "name", seconds=300).split():
        if time.monotonic() - begun > LONGEST_SECONDS:
            raise SystemExit("they are not gone")
        time.sleep(1)
    table("deleted", {"all gone after": f"{time.monotonic() - begun:.0f} s"})


def latency(plane: ControlPlane) -> None:
    """How long the API server waited for our webhooks, from its own histogram."""
    buckets: Counter[float] = Counter()
    for line in plane.kubectl("get", "--raw", "/metrics", seconds=120).splitlines():
        if line.startswith("apiserver_admission_webhook_admission_duration_seconds_bucket") and "machines." in line:
            labels, _, value = line.rpartition(" ")
            buckets[float(labels.partition('le="')[2].partition('"')[0].replace("+Inf", "inf"))] += int(float(value))
    total = buckets[float("inf")]
    table(
        "webhook answers, as the API server saw them",
        {f"within {le * 1000:.1f} ms": f"{count / total:.1%}" for le, count in sorted(buckets.items()) if total},
    )


def main() -> None:
    """Measure on a control plane of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vms", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=20)
    options = parser.parse_args()
    with control_plane(build(API), controllers=True, scheduler=True, audit=True) as plane:
        measure(plane, options.vms, options.nodes)


if __name__ == "__main__":
    main()

"""`anyvisor top`: what VMs use, from two looks at their counters."""

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from anyvisor.cli.api import Api, ApiRefusalError, connect
from anyvisor.cli.tables import show

Json = dict[str, Any]
EXAMPLES: Final = """examples:
  anyvisor top                  once, measured over a second
  anyvisor top -A --watch       all namespaces, again and again until Ctrl+C
  anyvisor top -o json          for programs"""
_COUNTERS: Final = ("cpuSeconds", "diskReadBytes", "diskWriteBytes", "networkReceivedBytes", "networkSentBytes")
HEADER: Final = ("CPU", "MEMORY", "GUEST", "DISK READ", "DISK WRITE", "NET IN", "NET OUT")


@dataclass(frozen=True, slots=True)
class Usage:
    """One VM: rates in bytes a second, CPU in cores, memory in bytes."""

    namespace: str
    name: str
    node: str
    cpu: float
    memory: int
    guest_memory: int
    disk_read: float
    disk_write: float
    network_in: float
    network_out: float


def configure(parser: argparse.ArgumentParser) -> None:
    """Which, and for how long."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("-n", "--namespace", default="default", help="their namespace (default: default)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    parser.add_argument("-w", "--watch", action="store_true", help="again and again until Ctrl+C")
    parser.add_argument("--seconds", type=float, default=1.0, help="time over which rates are measured (default: 1)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Look twice, and print the difference."""
    api = connect()
    space = "" if arguments.all_namespaces else arguments.namespace
    seconds = max(arguments.seconds, 1.0)
    before, began = _look(api), time.monotonic()
    while True:
        time.sleep(seconds)
        after, now = _look(api), time.monotonic()
        found = usages(before, after, now - began, space)
        _print(found, arguments.output, spaces=arguments.all_namespaces, clear=arguments.watch)
        if not arguments.watch:
            return 0
        before, began = after, now


def _look(api: Api) -> dict[str, list[Json]]:
    """The machines' counters by node; a node that does not answer is told on standard error."""
    found: dict[str, list[Json]] = {}
    for node in api.call("GET", "/apis/anyvisor.io/v1alpha1/hypervisornodes")["items"]:
        name: str = node["metadata"]["name"]
        try:
            answer: Json = api.call("GET", f"/api/v1/nodes/{quote(name)}/proxy/stats")
        except ApiRefusalError as refusal:
            print(f"node {name}: {refusal}", file=sys.stderr)
            continue
        found[name] = answer["items"]
        for driver, why in answer["silent"].items():
            print(f"node {name}: driver {driver} tells no counters: {why}", file=sys.stderr)
    return found


def usages(before: dict[str, list[Json]], after: dict[str, list[Json]], seconds: float, space: str) -> list[Usage]:
    """The VMs that were seen twice, the busiest first; `space` is a namespace, or empty for all."""
    earlier = {(node, row["namespace"], row["name"]): row for node, rows in before.items() for row in rows}
    found: list[Usage] = []
    for node, rows in after.items():
        for row in rows:
            then = earlier.get((node, row["namespace"], row["name"]))
            if then is None or (space and row["namespace"] != space):
                continue
            # A counter that went back belongs to another process.
            rates = [max(row[name] - then[name], 0) / seconds for name in _COUNTERS]
            memory = row["memoryBytes"], row["guestMemoryBytes"]
            found.append(Usage(row["namespace"], row["name"], node, rates[0], *memory, *rates[1:]))
    return sorted(found, key=lambda usage: usage.cpu, reverse=True)


def _print(found: list[Usage], output: str, *, spaces: bool, clear: bool) -> None:
    if output == "json":
        import json
        from dataclasses import asdict

        print(json.dumps([asdict(usage) for usage in found]), flush=True)
        return
    if clear and sys.stdout.isatty():
        print("\x1b[H\x1b[2J", end="")
    if not found:
        print("no running VMs found")
        return
    show((*(("NAMESPACE",) if spaces else ()), "NAME", *HEADER), [_row(usage, spaces=spaces) for usage in found])


def _row(usage: Usage, *, spaces: bool) -> tuple[str, ...]:
    where = (usage.namespace,) if spaces else ()
    rates = (usage.disk_read, usage.disk_write, usage.network_in, usage.network_out)
    used = (size(usage.memory), size(usage.guest_memory))
    return (*where, usage.name, f"{usage.cpu * 100:.0f}%", *used, *(f"{size(rate)}/s" for rate in rates))


def size(count: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit in ("B", "KiB") or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"

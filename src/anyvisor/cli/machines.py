"""`anyvisor list`: the VMs, as tables or for programs."""

import argparse
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from anyvisor.cli.api import KUBEVIRT, connect
from anyvisor.cli.tables import show

Json = dict[str, Any]
EXAMPLES: Final = """examples:
  anyvisor list                 the VMs of namespace default
  anyvisor list -A -o wide      of all namespaces, with addresses and class
  anyvisor list -o name         names alone, for scripts"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Which, and how they are printed."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("-n", "--namespace", default="default", help="their namespace (default: default)")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")
    parser.add_argument("-l", "--selector", help="only those with these labels, such as app=web")
    parser.add_argument(
        "-o", "--output", choices=["table", "wide", "json", "yaml", "name"], default="table", help="output format"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    api = connect()
    where = "" if arguments.all_namespaces else f"/namespaces/{quote(arguments.namespace)}"
    query = {"labelSelector": arguments.selector} if arguments.selector else None
    listed: Json = api.call("GET", f"{KUBEVIRT}{where}/virtualmachines", query=query)
    if arguments.output in ("table", "wide"):
        # Runs are asked for apart: a VM does not tell where it runs.
        runs: list[Json] = api.call("GET", f"{KUBEVIRT}{where}/virtualmachineinstances")["items"]
        header, rows = table(listed["items"], runs, wide=arguments.output == "wide", spaces=arguments.all_namespaces)
        if not rows:
            print("no VMs found; `anyvisor run IMAGE` makes one")
            return 0
        show(header, rows)
        return 0
    print_objects(listed, arguments.output, "virtualmachine.kubevirt.io")
    return 0


def table(vms: list[Json], runs: list[Json], *, wide: bool, spaces: bool) -> tuple[list[str], list[list[str]]]:
    """Header and rows."""
    by_name = {(run["metadata"]["namespace"], run["metadata"]["name"]): run for run in runs}
    header = [*(["NAMESPACE"] if spaces else []), "NAME", "STATUS", "READY", "NODE", "AGE"]
    header += ["IP", "CLASS", "ACCELERATOR"] if wide else []
    rows: list[list[str]] = []
    for vm in vms:
        meta, status = vm["metadata"], vm.get("status", {})
        run: Json = by_name.get((meta["namespace"], meta["name"]), {}).get("status", {})
        row = [*([meta["namespace"]] if spaces else []), meta["name"], status.get("printableStatus", "-")]
        row += ["yes" if status.get("ready") else "no", run.get("nodeName", "-"), age(meta["creationTimestamp"])]
        if wide:
            interfaces: list[Json] = run.get("interfaces") or [{}]
            chosen: Json = run.get("hypervisor") or {}
            row += [interfaces[0].get("ipAddress", "-"), chosen.get("class", "-"), chosen.get("accelerator", "-")]
        rows.append(row)
    return header, rows


def age(created: str, now: datetime | None = None) -> str:
    """How long ago, as kubectl writes it."""
    seconds = int(((now or datetime.now(UTC)) - datetime.fromisoformat(created)).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{max(seconds, 0)}s"


def print_objects(listed: Json, output: str, kind: str) -> None:
    """Print a list as JSON, YAML or names; `kind` stands before each name."""
    match output:
        case "json":
            import json

            print(json.dumps(listed))
        case "yaml":
            from anyvisor.cli.documents import to_yaml

            print(to_yaml(listed), end="")
        case _:
            for item in listed["items"]:
                print(f"{kind}/{item['metadata']['name']}")

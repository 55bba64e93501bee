"""`anyvisor status`: processes, nodes and VMs at a glance."""

import argparse
from pathlib import Path
from typing import Any

from anyvisor.cli.api import Api, connect, instance
from anyvisor.cli.main import CommandError
from anyvisor.cli.tables import show


def configure(parser: argparse.ArgumentParser) -> None:
    """`-o json` for machines; `--cluster` for an installation elsewhere."""
    parser.add_argument("--cluster", action="store_true", help="of the installation on a Kubernetes cluster instead")
    parser.add_argument("--kubeconfig", type=Path, help="the cluster (default: as kubectl finds it)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 when everything of the instance runs, else 1."""
    if arguments.cluster:
        from anyvisor.cli.cluster import print_status

        return print_status(arguments.kubeconfig, arguments.output)
    from anyvisor.embedded import supervisor

    of = instance()
    processes = supervisor.status(of)
    found: dict[str, Any] = {
        "dataDir": str(of.data_dir),
        "running": processes is not None,
        "processes": processes or [],
        "nodes": [],
        "vms": [],
    }
    if processes is not None:
        try:
            _add_objects(connect(), found)
        except CommandError as error:
            found["message"] = str(error)
    healthy = processes is not None and all(row["pid"] for row in processes) and "message" not in found
    if arguments.output == "json":
        import json

        print(json.dumps(found))
    else:
        _print(found)
    return 0 if healthy else 1


def _add_objects(api: Api, found: dict[str, Any]) -> None:
    for item in api.call("GET", "/apis/anyvisor.io/v1alpha1/hypervisornodes")["items"]:
        for driver in item.get("status", {}).get("drivers", []):
            accelerators: list[Any] = driver.get("accelerators") or []
            found["nodes"].append(
                {
                    "node": item["metadata"]["name"],
                    "driver": driver.get("driver", ""),
                    "version": driver.get("vmmVersion") or driver.get("version", ""),
                    "healthy": bool(driver.get("healthy")),
                    "accelerators": accelerators,
                    "message": driver.get("message", ""),
                }
            )
    for item in api.call("GET", "/apis/kubevirt.io/v1/virtualmachines")["items"]:
        status = item.get("status", {})
        found["vms"].append(
            {
                "namespace": item["metadata"]["namespace"],
                "name": item["metadata"]["name"],
                "status": status.get("printableStatus", ""),
                "ready": bool(status.get("ready")),
            }
        )


def _print(found: dict[str, Any]) -> None:
    if not found["running"]:
        print(f"the instance in {found['dataDir']} does not run: `anyvisor up --detach` starts it")
        return
    print(f"the instance in {found['dataDir']} runs\n")
    show(
        ("PROCESS", "PID", "RESTARTS", "AGE"),
        [(row["name"], row["pid"] or "-", row["restarts"], f"{row['seconds']:.0f}s") for row in found["processes"]],
    )
    if "message" in found:
        print(f"\n{found['message']}")
        return
    print()
    show(
        ("NODE", "DRIVER", "VERSION", "HEALTHY", "ACCELERATORS"),
        [
            (row["node"], row["driver"], row["version"], "yes" if row["healthy"] else "no", _words(row["accelerators"]))
            for row in found["nodes"]
        ],
    )
    print()
    show(
        ("NAMESPACE", "VM", "STATUS", "READY"),
        [(row["namespace"], row["name"], row["status"], "yes" if row["ready"] else "no") for row in found["vms"]],
    )


def _words(accelerators: list[Any]) -> str:
    return ",".join(str(a.get("name", a)) if isinstance(a, dict) else str(a) for a in accelerators) or "-"  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]

"""`anyvisor doctor`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anyvisor.cli.tables import show

if TYPE_CHECKING:
    from anyvisor.cluster.checks import Check as ClusterCheck
    from anyvisor.embedded.doctor import Check


def configure(parser: argparse.ArgumentParser) -> None:
    """`-o json` for machines; `--cluster` for a Kubernetes cluster."""
    parser.add_argument("--cluster", action="store_true", help="look at a Kubernetes cluster instead of this machine")
    parser.add_argument("--kubeconfig", type=Path, help="the cluster (default: as kubectl finds it)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 when VMs cannot run."""
    if arguments.cluster:
        from anyvisor.cli.cluster import cluster_checks

        return _tell(cluster_checks(arguments.kubeconfig), arguments.output)
    from anyvisor.embedded.doctor import checks
    from anyvisor.embedded.instance import default_data_dir

    return _tell(list(checks(default_data_dir())), arguments.output)


def _tell(found: "Sequence[Check | ClusterCheck]", output: str) -> int:
    if output == "json":
        import dataclasses
        import json

        print(json.dumps({"checks": [dataclasses.asdict(check) for check in found]}))
    else:
        show(("CHECK", "RESULT", "FOUND"), [(check.name, check.result, check.found) for check in found])
        for check in found:
            if check.fix:
                print(f"\n{check.name.strip()}: {check.fix}", end="")
        print()
    return 1 if any(check.result == "fail" for check in found) else 0

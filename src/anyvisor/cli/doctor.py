"""`anyvisor doctor`."""

import argparse

from anyvisor.cli.tables import show


def configure(parser: argparse.ArgumentParser) -> None:
    """`-o json` for machines."""
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 when VMs cannot run."""
    from anyvisor.embedded.doctor import Result, checks
    from anyvisor.embedded.instance import default_data_dir

    found = list(checks(default_data_dir()))
    if arguments.output == "json":
        import dataclasses
        import json

        print(json.dumps({"checks": [dataclasses.asdict(check) for check in found]}))
    else:
        show(("CHECK", "RESULT", "FOUND"), [(check.name, check.result, check.found) for check in found])
        for check in found:
            if check.fix:
                print(f"\n{check.name.strip()}: {check.fix}", end="")
        print()
    return 1 if any(check.result is Result.FAIL for check in found) else 0

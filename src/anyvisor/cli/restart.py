"""`anyvisor restart VM`."""

import argparse

from anyvisor.cli.api import connect, split_name
from anyvisor.cli.lifecycle import call, configure_vm, find_vmi, wait_for


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM, and --force."""
    configure_vm(parser)
    parser.add_argument("--force", action="store_true", help="do not wait for the guest to shut down")


def run(arguments: argparse.Namespace) -> int:
    """Ask for the restart."""
    before = find_vmi(connect(), arguments.namespace, split_name(arguments.vm)) or {}
    old = before.get("metadata", {}).get("uid")
    api, name = call(arguments, "restart", {"gracePeriodSeconds": 0} if arguments.force else {})
    if arguments.wait:
        wait_for(
            api,
            arguments.namespace,
            name,
            lambda vmi: (
                vmi is not None and vmi["metadata"]["uid"] != old and vmi.get("status", {}).get("phase") == "Running"
            ),
            "running anew",
        )
    print(f"VM {name} was scheduled to restart" if not arguments.wait else f"VM {name} runs anew")
    return 0

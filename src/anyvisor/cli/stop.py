"""`anyvisor stop VM`."""

import argparse

from anyvisor.cli.lifecycle import call, configure_vm, wait_for


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM, its grace period, and --force."""
    configure_vm(parser)
    parser.add_argument("--grace-period", type=int, metavar="SECONDS", help="time for the guest to shut down")
    parser.add_argument("--force", action="store_true", help="power cut (as --grace-period 0)")


def run(arguments: argparse.Namespace) -> int:
    """Ask for the stop."""
    grace = 0 if arguments.force else arguments.grace_period
    api, name = call(arguments, "stop", {} if grace is None else {"gracePeriod": grace})
    if arguments.wait:
        wait_for(api, arguments.namespace, name, lambda vmi: vmi is None, "stopped")
    print(f"VM {name} was scheduled to stop" if not arguments.wait else f"VM {name} is stopped")
    return 0

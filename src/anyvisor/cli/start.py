"""`anyvisor start VM`."""

import argparse

from anyvisor.cli.lifecycle import call, configure_vm, wait_for


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM, and --paused."""
    configure_vm(parser)
    parser.add_argument("--paused", action="store_true", help="start it with its CPUs held")


def run(arguments: argparse.Namespace) -> int:
    """Ask for the start."""
    api, name = call(arguments, "start", {"paused": True} if arguments.paused else {})
    if arguments.wait:
        running = "Running"
        wait_for(api, arguments.namespace, name, lambda vmi: _phase(vmi) == running, "running")
    print(f"VM {name} was scheduled to start" if not arguments.wait else f"VM {name} runs")
    return 0


def _phase(vmi: dict[str, dict[str, str]] | None) -> str:
    return (vmi or {}).get("status", {}).get("phase", "")

"""`anyvisor service`: the instance comes up with the machine, and its guests go down cleanly with it."""

import argparse
import sys
from typing import Any

from anyvisor.cli.main import CommandError
from anyvisor.cli.tables import show


def configure(parser: argparse.ArgumentParser) -> None:
    """Four verbs; `shutdown` is what a unit calls."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    made = verbs.add_parser("install", help="write, enable and start the units; again changes what differs")
    made.add_argument("--nodes", type=int, default=1, metavar="N", help="how many nodes to simulate (default: 1)")
    made.add_argument("--drivers", default="", metavar="A,B", help="hypervisor drivers to serve (default: all present)")
    verbs.add_parser("uninstall", help="stop and remove the units; VMs go on")
    verbs.add_parser("status", help="whether the units are installed, enabled and active")
    down = verbs.add_parser("shutdown", help="shut all guests down while the control plane is stopped")
    down.add_argument("--timeout", type=float, default=180, metavar="SECONDS", help="for the guests (default: 180)")


def run(arguments: argparse.Namespace) -> int:
    """Say what was done, or that nothing had to be."""
    from anyvisor.embedded.instance import InstanceError, create_instance, default_data_dir
    from anyvisor.embedded.systemd import ServiceError

    try:
        return _VERBS[arguments.verb](create_instance(default_data_dir()), arguments)
    except (ServiceError, InstanceError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error


def _install(instance: Any, arguments: argparse.Namespace) -> int:
    import os

    from anyvisor.embedded.systemd import install, manager

    where = manager()
    options = ("--nodes", str(arguments.nodes)) if arguments.nodes != 1 else ()
    options += ("--drivers", arguments.drivers) if arguments.drivers else ()
    done = install(where, instance.data_dir, options)
    print(*(done or ["nothing to do: the units are as they should be"]), sep="\n")
    if not where.running:
        print("systemd does not run here now: the units start with the next boot", file=sys.stderr)
    if os.geteuid() != 0:
        print("to start at boot and not at your first login: loginctl enable-linger", file=sys.stderr)
    return 0


def _uninstall(_instance: Any, _arguments: argparse.Namespace) -> int:
    from anyvisor.embedded.systemd import manager, uninstall

    print(*(uninstall(manager()) or ["nothing to do: the units are not installed"]), sep="\n")
    return 0


def _status(_instance: Any, _arguments: argparse.Namespace) -> int:
    from anyvisor.embedded.systemd import manager, states

    found = states(manager())
    words = {True: "yes", False: "no"}
    rows = [(unit.name, words[unit.installed], words[unit.enabled], words[unit.active]) for unit in found]
    show(("UNIT", "INSTALLED", "ENABLED", "ACTIVE"), rows)
    return 0 if all(unit.enabled for unit in found) else 1


def _shutdown(instance: Any, arguments: argparse.Namespace) -> int:
    import asyncio

    from anyvisor.embedded import shutdown, supervisor

    if supervisor.status(instance) is not None:
        raise CommandError(
            "the control plane runs, and would start the VMs anew: `anyvisor down --stop-vms` stops both"
        )

    def told(outcome: shutdown.Outcome) -> None:
        print(f"{outcome.pod_uid}: {'shut down' if outcome.clean else 'ended by force'}", flush=True)

    ended = asyncio.run(shutdown.guests(instance, arguments.timeout, told))
    print(f"{len(ended)} guests are down")
    return 0 if all(outcome.clean for outcome in ended) else 1


_VERBS = {"install": _install, "uninstall": _uninstall, "status": _status, "shutdown": _shutdown}

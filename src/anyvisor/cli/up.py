"""`anyvisor up`: start the control plane of this machine."""

import argparse

from anyvisor.cli.main import CommandError

_MAX_NODES = 64


def configure(parser: argparse.ArgumentParser) -> None:
    """How many nodes, and whether to stay."""
    parser.add_argument("--nodes", type=_count, default=1, metavar="N", help="how many nodes to simulate (default: 1)")
    parser.add_argument(
        "--drivers", type=_names, metavar="A,B", help="hypervisor drivers to serve (default: those whose VMM is here)"
    )
    parser.add_argument(
        "--audit-log", choices=("on", "off"), help="record who does what in DATA_DIR/control/audit.log, from now on"
    )
    parser.add_argument("--stay", action="store_true", help="stay in the foreground, also when it runs already")
    parser.add_argument("--detach", action="store_true", help="return when ready; `anyvisor down` stops it")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_NODES:
        raise argparse.ArgumentTypeError(f"{text!r} is no number between 1 and {_MAX_NODES}")
    return int(text)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def run(arguments: argparse.Namespace) -> int:
    """Start the zygote in a session of its own, and wait until the API answers."""

    from anyvisor.embedded import supervisor
    from anyvisor.embedded.instance import InstanceError, create_instance, default_data_dir
    from anyvisor.hri.packages import DriverError, check_names, present

    try:
        instance = create_instance(default_data_dir())
        drivers = arguments.drivers or present()
        check_names(drivers)
        if not drivers:
            raise DriverError("no hypervisor is installed: `anyvisor doctor` says how to get one")
        if arguments.audit_log:
            instance = instance._replace(audit=arguments.audit_log == "on")
        started = supervisor.start(instance, arguments.nodes, drivers)
    except (InstanceError, DriverError) as error:
        raise CommandError(str(error)) from error
    if arguments.audit_log and not started:
        raise CommandError("the instance runs already: stop it with `anyvisor down` to switch the audit log")
    ready = f"anyvisor {'is ready' if started else 'was running already'}: KUBECONFIG={instance.kubeconfig}"
    if arguments.detach or not (started or arguments.stay):
        print(ready)
        return 0
    again = f"anyvisor --data-dir {instance.data_dir} up"
    hint = f"Ctrl+C stops the control plane; VMs go on, and the next `{again}` finds them."
    supervisor.stay(instance, lambda: print(ready, hint, sep="\n", flush=True))
    print("anyvisor stopped; VMs go on")
    return 0

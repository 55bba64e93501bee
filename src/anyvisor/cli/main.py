"""`anyvisor`: finds the command's module, and turns errors into one sentence and an exit code.

Modules are imported only for the command that was asked for, so that short commands stay short.
"""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

GROUPS = {
    "this machine": {
        "up": "start the control plane of this machine",
        "down": "stop the control plane; VMs go on unless --stop-vms",
        "status": "show the instance's processes, nodes and VMs",
        "doctor": "check what this machine can run, with the fix for what is missing",
        "service": "start the control plane with the machine: systemd units",
        "backup": "write a copy of all objects to a file, while the instance runs",
        "restore": "put a backup in the place of all objects, while the instance does not run",
        "ui": "open the web console in a browser, logged in",
    },
    "VMs": {
        "list": "list VMs with their state",
        "run": "create and start a VM from an image",
        "start": "start a VM",
        "stop": "shut a VM down",
        "restart": "shut a VM down and start it anew",
        "pause": "hold a VM's CPUs",
        "unpause": "let a paused VM go on",
        "reset": "reset a VM's hardware, without a shutdown",
        "soft-reboot": "ask a VM's guest to reboot",
        "why": "say in one sentence why a VM does not run",
        "top": "show what VMs use: CPU, memory, disk and network",
    },
    "into a VM": {
        "console": "attach to a VM's serial console (Ctrl+] leaves)",
        "logs": "print what a VM wrote to its serial console, or what its VMM said",
        "ssh": "log in to a VM by ssh",
        "scp": "copy files to or from a VM by ssh",
        "port-forward": "let ports of this machine lead to ports of a VM",
        "vnc": "show a VM's display in a viewer or on a local port, or take a picture of it",
        "usbredir": "lend a USB device of this machine to a VM",
    },
    "images and manifests": {
        "image": "pull, build, import, list and remove images",
        "validate": "check manifests without a server",
        "review": "say which hypervisor classes would run a machine, and what would work instead",
    },
    "hypervisors": {
        "classes": "list the hypervisor classes",
        "drivers": "list the installed hypervisor drivers",
        "driver": "install, upgrade, remove and list drivers while the instance runs",
        "nodes": "list the nodes with what they can run",
        "conform": "test a hypervisor driver against the specification",
    },
    "a Kubernetes cluster": {
        "install": "install on a Kubernetes cluster",
        "upgrade": "bring an installation on a Kubernetes cluster to this version; running VMs do not notice",
        "uninstall": "remove an installation from a Kubernetes cluster; refused while VMs exist",
    },
    "tools": {
        "kubectl": "run kubectl against this instance",
        "completion": "print the completion script of a shell",
        "version": "print the version",
    },
}

COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}

_MODULES = {
    **dict.fromkeys(("pause", "unpause", "reset", "soft-reboot"), "machine"),
    **dict.fromkeys(("install", "upgrade", "uninstall"), "cluster"),
    "list": "machines",
    "port-forward": "port_forward",
    "scp": "ssh",
    **dict.fromkeys(("classes", "drivers", "nodes"), "listing"),
}
"""Commands whose module has another name than they have."""

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """What a user is told when a command cannot be done: the cause and the next step."""


def usage() -> str:
    """The help text."""
    width = max(map(len, COMMANDS))
    groups = "\n".join(
        f"{title}:\n" + "".join(f"  {name:<{width}}  {text}\n" for name, text in group.items())
        for title, group in GROUPS.items()
    )
    return (
        "anyvisor: the Kubernetes virtualization API on any hypervisor\n\n"
        "usage: anyvisor [--data-dir D] COMMAND ...\n\n"
        f"{groups}\n"
        "options:\n"
        "  --data-dir D   the instance's directory (default: $ANYVISOR_DATA_DIR, else /var/lib/anyvisor\n"
        "                 as root, else ~/.local/share/anyvisor)\n"
        "  -h, --help     this text; `anyvisor COMMAND --help` tells of one command\n\n"
        "first steps:\n"
        "  anyvisor doctor\n"
        "  anyvisor up --detach\n"
        "  anyvisor image import disk.qcow2 --name demo\n"
        "  anyvisor run demo && anyvisor console demo\n"
    )


def program() -> NoReturn:
    """The program `anyvisor`: `main`, without what a short command would pay for and not use.

    Taking a process's modules and objects apart one by one costs as much as the whole command, and collecting
    garbage among them while they come is in vain.
    """
    gc.disable()
    code = main()
    threads = sys.modules.get("threading")
    if threads is not None and threads.active_count() > 1:
        sys.exit(code)  # they are to end first
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = EXIT_FAILURE
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    data_dir: str | None = None
    while words and words[0].startswith("-"):
        option, _, value = words.pop(0).partition("=")
        if option in ("-h", "--help"):
            print(usage(), end="")
            return 0
        if option == "--version":
            words = ["version"]
            break
        if option != "--data-dir" or not (value or words):
            print(f"anyvisor: unknown or incomplete option {option}; see `anyvisor --help`", file=sys.stderr)
            return EXIT_USAGE
        data_dir = value or words.pop(0)
    if not words:
        print(usage(), end="", file=sys.stderr)
        return EXIT_USAGE
    if data_dir is not None:
        os.environ["ANYVISOR_DATA_DIR"] = os.path.abspath(data_dir)
    return _run(words[0], words[1:])


def module_of(command: str) -> str:
    """The module of a command."""
    return _MODULES.get(command, command)


def _advice(command: str) -> str:
    import difflib

    close = difflib.get_close_matches(command, COMMANDS, n=1)
    return f"did you mean `anyvisor {close[0]}`?" if close else "see `anyvisor --help`"


def _run(command: str, words: list[str]) -> int:
    if command not in COMMANDS:
        print(f"anyvisor: unknown command {command!r}; {_advice(command)}", file=sys.stderr)
        return EXIT_USAGE
    module = importlib.import_module(f"anyvisor.cli.{module_of(command)}")
    if hasattr(module, "run_words"):  # the command parses its words itself (kubectl)
        call = module.run_words, words
    else:
        from anyvisor.cli.arguments import Parser

        parser = Parser(
            prog=f"anyvisor {command}", description=f"{COMMANDS[command][0].upper()}{COMMANDS[command][1:]}."
        )
        parser.set_defaults(command=command)
        module.configure(parser)
        call = module.run, parser.parse_args(words)
    gc.freeze()
    gc.enable()
    try:
        return call[0](call[1])
    except CommandError as error:
        print(f"anyvisor {command}: {error}", file=sys.stderr)
        return EXIT_FAILURE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED

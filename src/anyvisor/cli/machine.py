"""`anyvisor pause|unpause|reset|soft-reboot VM`: one call on the running machine."""

import argparse
from urllib.parse import quote

from anyvisor.cli.api import SUBRESOURCES, connect, split_name
from anyvisor.cli.naming import named

_DONE = {
    "pause": "is paused",
    "unpause": "goes on",
    "reset": "was reset",
    "soft-reboot": "was asked to reboot",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM and its namespace."""
    parser.add_argument("vm", metavar="VM", help="name of the VM (NAME or vm/NAME)")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")


def run(arguments: argparse.Namespace) -> int:
    """Ask for it, and say what was done."""
    name, verb = split_name(arguments.vm), arguments.command.replace("-", "")
    path = f"{SUBRESOURCES}/namespaces/{quote(arguments.namespace)}/virtualmachineinstances/{quote(name)}/{verb}"
    api = connect()
    with named(api, arguments.namespace, name):
        api.call("PUT", path, {})
    print(f"VM {name} {_DONE[arguments.command]}")
    return 0

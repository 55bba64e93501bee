"""What `start`, `stop` and `restart` share: one subresource call, and waiting for its effect."""

import argparse
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from anyvisor.cli.api import SUBRESOURCES, Api, ApiRefusalError, connect, split_name
from anyvisor.cli.main import CommandError
from anyvisor.cli.naming import named

WAIT_SECONDS = 120


def configure_vm(parser: argparse.ArgumentParser) -> None:
    """The VM, its namespace, and whether to wait."""
    parser.add_argument("vm", metavar="VM", help="name of the VM (NAME or vm/NAME)")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("--wait", action="store_true", help="return when it is done")


def call(arguments: argparse.Namespace, verb: str, body: dict[str, Any]) -> tuple[Api, str]:
    """PUT the VM's subresource `verb`; the connection and the VM's name."""
    api, name = connect(), split_name(arguments.vm)
    path = f"{SUBRESOURCES}/namespaces/{quote(arguments.namespace)}/virtualmachines/{quote(name)}/{verb}"
    with named(api, arguments.namespace, name):
        api.call("PUT", path, body)
    return api, name


def wait_for(
    api: Api,
    namespace: str,
    name: str,
    done: Callable[[dict[str, Any] | None], bool],
    what: str,
    seconds: int = WAIT_SECONDS,
) -> None:
    """Watch the VMI `name` until `done` (None = there is no VMI).

    Raises:
        CommandError: it is not so after `seconds`.
    """
    import time

    deadline = time.monotonic() + seconds
    while True:
        vmi = find_vmi(api, namespace, name)
        if done(vmi):
            return
        left = int(deadline - time.monotonic())
        if left <= 0:
            raise CommandError(f"{name} is not {what} after {seconds} s; see `anyvisor why vm/{name}`")
        _next_change(api, namespace, name, (vmi or {}).get("metadata", {}).get("resourceVersion"), left)


def find_vmi(api: Api, namespace: str, name: str) -> dict[str, Any] | None:
    """The VMI, or None."""
    try:
        return api.call("GET", api.vm(namespace, name, "virtualmachineinstances"))
    except ApiRefusalError as failure:
        if failure.status == 404:
            return None
        raise


def _next_change(api: Api, namespace: str, name: str, version: str | None, seconds: int) -> None:
    """Return at the VMI's next change, or after `seconds`."""
    query = {"watch": "true", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(min(seconds, 20))}
    if version is not None:
        query["resourceVersion"] = version
    Api(api.instance).first_event(f"/apis/kubevirt.io/v1/namespaces/{quote(namespace)}/virtualmachineinstances", query)

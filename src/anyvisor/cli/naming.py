"""What a user is told who names a VM that is not there, or that does not run: whatever the command."""

import contextlib
from collections.abc import Generator
from typing import Any

from anyvisor.cli.api import KUBEVIRT, Api, ApiRefusalError
from anyvisor.cli.main import CommandError
from anyvisor.embedded.instance import Instance

_NOT_FOUND = 404


def absent(api: Api, namespace: str, name: str) -> CommandError:
    """The sentence about a VM of which something was not found: that it does not run, or what was meant."""
    vms: list[dict[str, Any]] = api.call("GET", f"{KUBEVIRT}/virtualmachines")["items"]
    known = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in vms]
    if (namespace, name) in known:
        return CommandError(f"VM {name} does not run: `anyvisor why vm/{name}` tells why")
    missing = f"there is no VM {name} in namespace {namespace}"
    elsewhere = [space for space, other in known if other == name]
    if elsewhere:
        return CommandError(f"{missing}, but one in {elsewhere[0]}: add `-n {elsewhere[0]}`")
    import difflib

    close = difflib.get_close_matches(name, [other for space, other in known if space == namespace], n=1)
    return CommandError(f"{missing}; {f'did you mean {close[0]}?' if close else '`anyvisor list -A` shows all'}")


@contextlib.contextmanager
def named(api: Api, namespace: str, name: str) -> Generator[None]:
    """Put that sentence in the place of the server's, while the block speaks of the VM."""
    try:
        yield
    except ApiRefusalError as refusal:
        if refusal.status != _NOT_FOUND:
            raise
        raise absent(api, namespace, name) from refusal


def check_running(of: Instance, namespace: str, name: str) -> None:
    """Raise CommandError unless the VM runs; for what then goes on without this connection."""
    with contextlib.closing(Api(of)) as api:
        running(api, namespace, name)


def running(api: Api, namespace: str, name: str) -> dict[str, Any]:
    """The VMI of a VM that runs; raises CommandError."""
    with named(api, namespace, name):
        return api.call("GET", api.vm(namespace, name, "virtualmachineinstances"))

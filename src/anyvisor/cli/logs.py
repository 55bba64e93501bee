"""`anyvisor logs VM`: what the guest wrote to its serial console, or what its VMM said."""

import argparse
import sys
from typing import Any, Final
from urllib.parse import quote

from anyvisor.cli.api import Api, connect, split_name
from anyvisor.cli.main import CommandError
from anyvisor.cli.naming import running

GUEST: Final = "guest-console-log"
VMM: Final = "compute"
EXAMPLES: Final = """examples:
  anyvisor logs web              all that is kept of the serial console
  anyvisor logs web -f --tail 20 the last 20 lines, then what comes
  anyvisor logs web --vmm        what the hypervisor's process wrote"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The VM, and how much."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("vm", metavar="VM", help="name of the VM (NAME or vm/NAME)")
    parser.add_argument("-n", "--namespace", default="default", help="its namespace (default: default)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until it ends")
    parser.add_argument("--tail", type=int, metavar="N", help="only the last N lines")
    parser.add_argument("--vmm", action="store_true", help="what the VMM said, not the guest")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    api, name = connect(), split_name(arguments.vm)
    pod = launcher(api, arguments.namespace, name)
    query = {"container": VMM if arguments.vmm else GUEST}
    if arguments.follow:
        query["follow"] = "true"
    if arguments.tail is not None:
        if arguments.tail < 0:
            raise CommandError("--tail takes a number of lines, 0 or more")
        query["tailLines"] = str(arguments.tail)
    path = f"/api/v1/namespaces/{quote(arguments.namespace)}/pods/{quote(pod)}/log"
    for chunk in api.follow(path, query):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    return 0


def launcher(api: Api, namespace: str, name: str) -> str:
    """The name of the VM's launcher pod; raises CommandError."""
    vmi = running(api, namespace, name)
    query = {"labelSelector": f"kubevirt.io/created-by={vmi['metadata']['uid']}"}
    pods: list[dict[str, Any]] = api.call("GET", f"/api/v1/namespaces/{quote(namespace)}/pods", query=query)["items"]
    if not pods:
        raise CommandError(f"VM {name} has no launcher yet: `anyvisor why vm/{name}` tells why")
    return max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])["metadata"]["name"]

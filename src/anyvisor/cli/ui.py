"""`anyvisor ui`: the web console, with a login that ends by itself."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import Final
from urllib.parse import quote

from anyvisor.cli.api import Api, ApiRefusalError, connect
from anyvisor.cli.main import CommandError

NAMESPACE: Final = "kube-system"
ROLES: Final = ("admin", "edit", "view")
MIN_MINUTES: Final = 10
EXAMPLES: Final = """examples:
  anyvisor ui                       open it, for an hour
  anyvisor ui --print --role view   print an address for somebody who may only look"""


def configure(parser: argparse.ArgumentParser) -> None:
    """What the login may do, and for how long."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--role", choices=ROLES, default="admin", help="what the login may do (default: admin)")
    parser.add_argument("--minutes", type=int, default=60, help="how long it lasts (default: 60)")
    parser.add_argument("--print", action="store_true", help="print the address, open nothing")


def run(arguments: argparse.Namespace) -> int:
    """Print the address; open it where there is a desktop."""
    if arguments.minutes < MIN_MINUTES:
        raise CommandError(f"a login lasts at least {MIN_MINUTES} minutes")
    api = connect()
    address = f"https://127.0.0.1:{api.instance.api_port}/ui/#token={token(api, arguments.role, arguments.minutes)}"
    print(address, flush=True)
    if not (files("anyvisor.web") / "vendor" / "xterm.mjs").is_file():
        print("without terminal and viewer: `make web` fetches them (npm is needed)", file=sys.stderr)
    print(f"the certificate is signed by {api.instance.pki_dir / 'ca.crt'}", file=sys.stderr)
    desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    program = shutil.which("xdg-open") if desktop and not arguments.print else None
    if program is not None:
        subprocess.run([program, address], check=False)
    return 0


def token(api: Api, role: str, minutes: int) -> str:
    """A token of an account that has the role everywhere; the account is made when it is missing."""
    name = f"anyvisor-console-{role}"
    _make(api, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": name}})
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    _make(api, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{quote(name)}/token"
    return api.call("POST", path, {"spec": {"expirationSeconds": minutes * 60}})["status"]["token"]


def _make(api: Api, path: str, obj: Mapping[str, object]) -> None:
    try:
        api.call("POST", path, obj)
    except ApiRefusalError as refusal:
        if refusal.status != 409:
            raise

"""`anyvisor down`: stop the control plane."""

import argparse
import time

from anyvisor.cli.api import Api, connect, instance
from anyvisor.cli.main import CommandError
from anyvisor.embedded.instance import Instance

_CLEAN_SECONDS = 15


def configure(parser: argparse.ArgumentParser) -> None:
    """--stop-vms, and how long they may take."""
    parser.add_argument("--stop-vms", action="store_true", help="shut the VMs down first")
    parser.add_argument("--timeout", type=_seconds, default=180, metavar="SECONDS", help="for the VMs to stop")


def _seconds(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, such as 180")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """VMs first where asked, then the processes."""
    from anyvisor.embedded import supervisor
    from anyvisor.embedded.instance import InstanceError

    of = instance()
    if arguments.stop_vms:
        _stop_vms(connect(), arguments.timeout)
        _wait_for_launchers(of)
    try:
        stopped = supervisor.stop(of)
    except InstanceError as error:
        raise CommandError(str(error)) from error
    if not stopped:
        print("anyvisor was not running")
    else:
        print("anyvisor stopped" + ("" if arguments.stop_vms else "; VMs go on, and the next `anyvisor up` finds them"))
    return 0


def _wait_for_launchers(of: Instance) -> None:
    """Wait until the nodes have taken the last launchers off this host, which no object tells: their pods are gone."""
    deadline = time.monotonic() + _CLEAN_SECONDS
    while of.launchers_left():
        if time.monotonic() > deadline:
            where = of.run_dir / "nodes"
            raise CommandError(
                f"the VMs are stopped, but {where} still holds launchers after {_CLEAN_SECONDS} s: see {of.log_dir}; "
                "nothing else was stopped"
            )
        time.sleep(0.02)


def _stop_vms(api: Api, seconds: int) -> None:
    """Halt every VM, delete every VMI that no VM owns, and wait until none is left."""
    base = "/apis/kubevirt.io/v1"
    merge = "application/merge-patch+json"
    for vm in api.call("GET", f"{base}/virtualmachines")["items"]:
        meta = vm["metadata"]
        patch = {"spec": {"running": False} if "running" in vm["spec"] else {"runStrategy": "Halted"}}
        api.call("PATCH", api.vm(meta["namespace"], meta["name"]), patch, content_type=merge)
    deadline = time.monotonic() + seconds
    while True:
        listed = api.call("GET", f"{base}/virtualmachineinstances")
        if not listed["items"]:
            return
        for vmi in listed["items"]:
            meta = vmi["metadata"]
            if "deletionTimestamp" not in meta:
                api.call("DELETE", api.vm(meta["namespace"], meta["name"], "virtualmachineinstances"))
        left = int(deadline - time.monotonic())
        if left <= 0:
            names = ", ".join(vmi["metadata"]["name"] for vmi in listed["items"])
            raise CommandError(f"still running after {seconds} s: {names}; nothing else was stopped")
        query = {
            "watch": "true",
            "resourceVersion": listed["metadata"]["resourceVersion"],
            "timeoutSeconds": str(min(left, 20)),
        }
        Api(api.instance).first_event(f"{base}/virtualmachineinstances", query)

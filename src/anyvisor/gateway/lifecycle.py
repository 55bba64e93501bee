"""start, stop, restart and migrate: what each run strategy makes of them."""

from collections.abc import Sequence
from typing import Any, Final

from anyvisor.api.meta import Json, condition_is, object_at, uid
from anyvisor.gateway import patches
from anyvisor.gateway.answers import VM, Decision, Write, accepted, bad_request, conflict, internal
from anyvisor.gateway.call import Call, dry_run, flag_option, object_option, options, whole_option
from anyvisor.gateway.world import World, is_final, is_running, phase
from anyvisor.kube.resources import MIGRATIONS, VMIS, VMS

ALWAYS: Final = "Always"
HALTED: Final = "Halted"
MANUAL: Final = "Manual"
ONCE: Final = "Once"
RERUN: Final = "RerunOnFailure"

RECOVERY: Final = "ManualRecoveryRequired"
VOLUMES_CHANGE: Final = "VolumesChange"
FORCED_GRACE: Final = 1
"""Seconds of grace of a VMI that a forced restart ends: the least that still runs the stop."""

_REQUESTS = "/status/stateChangeRequests"
_GRACE = "/spec/terminationGracePeriodSeconds"


def start(call: Call, world: World) -> Decision:
    """Have a stopped VM run, paused from its first instruction on if so wished."""
    found = options(call)
    paused, dry = flag_option(found, "paused"), dry_run(found)
    vm, vmi = world.the_vm(call), world.vmi
    if vmi is not None and not is_final(vmi) and phase(vmi) not in ("", "Unknown"):
        raise conflict(VM, call.name, "VM is already running")
    if condition_is(vm, RECOVERY):
        raise conflict(VM, call.name, "VM recovery required")
    strategy = run_strategy(vm)
    begin: Json = {"action": "Start", **({"data": {"paused": "true"}} if paused else {})}
    match strategy:
        case "Always" | "Once":
            raise conflict(VM, call.name, f"{strategy} does not support manual start requests")
        case "Halted" if not paused:
            return accepted(_set_running(call, vm, running=True, dry=dry))
        case "Halted":
            return accepted(_request(call, vm, [begin], dry))
        case "Manual" | "RerunOnFailure":
            if strategy == RERUN and vmi is not None and phase(vmi) == "Failed":
                raise conflict(VM, call.name, f"{strategy} does not support starting VM from failed state")
            over = vmi is not None and is_final(vmi)
            requests = [_stop(vmi), begin] if over else [begin]
            return accepted(_request(call, vm, requests, dry))
        case _:
            return accepted()


def stop(call: Call, world: World) -> Decision:
    """Shut the guest down; a grace period given here replaces that of the VMI."""
    found = options(call)
    grace, dry = whole_option(found, "gracePeriod"), dry_run(found)
    vm = world.the_vm(call)
    live = world.vmi if world.vmi is not None and not is_final(world.vmi) else None
    first: tuple[Write, ...] = ()
    if live is not None and grace is not None:
        first = (_set_grace(call, live, grace, dry),)
    strategy = run_strategy(vm)
    match strategy:
        case "Halted" | "Manual" | "RerunOnFailure":
            if live is None:
                raise conflict(VM, call.name, "VM is not running")
            if strategy == HALTED and not _is_shorter(grace, live):
                why = f"{strategy} only supports manual stop requests with a shorter graceperiod"
                raise conflict(VM, call.name, why, first)
            return accepted(*first, _request(call, vm, [_stop(live)], dry))
        case "Always" | "Once":
            return accepted(*first, *_forget_requests(call, vm, dry), _set_running(call, vm, running=False, dry=dry))
        case _:
            return accepted(*first)


def restart(call: Call, world: World) -> Decision:
    """Stop this run and start another; a grace period of 0 does not wait for the guest."""
    found = options(call)
    grace, dry = whole_option(found, "gracePeriodSeconds"), dry_run(found)
    if grace is not None and grace > 0:
        raise bad_request("For force restart, only gracePeriod=0 is supported for now")
    if grace is not None and grace < 0:
        raise bad_request("gracePeriod has to be greater or equal to 0")
    vm, vmi = world.the_vm(call), world.vmi
    strategy = run_strategy(vm)
    if strategy in (HALTED, ONCE):
        raise conflict(VM, call.name, f"{strategy} does not support manual restart requests")
    if vmi is None:
        raise conflict(VM, call.name, "VM is not running")
    for blocking in (RECOVERY, VOLUMES_CHANGE):
        if condition_is(vm, blocking):
            raise conflict(VM, call.name, f"the VM has the condition {blocking}; restart it once that is gone")
    request = _request(call, vm, [_stop(vmi), {"action": "Start"}], dry)
    if grace is None:
        return accepted(request)
    return accepted(_set_grace(call, vmi, FORCED_GRACE, dry), request)


def migrate(call: Call, world: World) -> Decision:
    """Ask for a live migration of the VM's run."""
    found = options(call)
    selector, dry = object_option(found, "addedNodeSelector"), dry_run(found)
    world.the_vm(call)
    vmi = world.the_vmi(call)
    if not is_running(vmi):
        raise conflict(VM, call.name, "VM is not running")
    migration: Json = {
        "apiVersion": MIGRATIONS.api_version,
        "kind": MIGRATIONS.kind,
        "metadata": {"generateName": "kubevirt-migrate-vm-"},
        "spec": {"vmiName": call.name, **({"addedNodeSelector": selector} if selector else {})},
    }
    return accepted(Write(MIGRATIONS, call.namespace, migration, dry_run=dry))


def run_strategy(vm: Json) -> str:
    """Return the run strategy, also where the older `running` says it; raises Refused (500) for both."""
    spec = object_at(vm, "spec")
    running, strategy = spec.get("running"), spec.get("runStrategy")
    if running is not None and strategy is not None:
        raise internal("Running and RunStrategy are mutually exclusive")
    if running is not None:
        return ALWAYS if running else HALTED
    return str(strategy) if strategy else HALTED


def _is_shorter(grace: int | None, vmi: Json) -> bool:
    if grace is None:
        return False
    present: Any = object_at(vmi, "spec").get("terminationGracePeriodSeconds")
    return present is None or grace < present


def _stop(vmi: Json | None) -> Json:
    return {"action": "Stop", "uid": uid(vmi or {})}


def _set_running(call: Call, vm: Json, *, running: bool, dry: bool) -> Write:
    spec = object_at(vm, "spec")
    if spec.get("running") is not None:
        path, old, new = "/spec/running", spec["running"], running
    else:
        path, old, new = "/spec/runStrategy", spec.get("runStrategy"), ALWAYS if running else HALTED
    patch = [patches.test(path, old), patches.add(path, new) if old is None else patches.replace(path, new)]
    return Write(VMS, call.namespace, patch, call.name, dry_run=dry)


def _request(call: Call, vm: Json, requests: Sequence[Json], dry: bool) -> Write:
    """Leave `requests` for the controller in the VM's status.

    A lone stop takes the place of whatever waits there; everything else waits its turn. A start failure is
    forgotten, so that a person who starts the VM by hand does not wait for its back-off.
    """
    status = object_at(vm, "status")
    if not status:
        patch = [patches.add("/status", {"stateChangeRequests": list(requests)})]
        return Write(VMS, call.namespace, patch, call.name, "status", dry)
    pending: Any = status.get("stateChangeRequests")
    if pending and [each["action"] for each in requests] != ["Stop"]:
        raise internal("unable to complete request: stop/start already underway")
    patch = patches.change(_REQUESTS, pending, list(requests))
    if status.get("startFailure") is not None:
        patch.append(patches.remove("/status/startFailure"))
    return Write(VMS, call.namespace, patch, call.name, "status", dry)


def _forget_requests(call: Call, vm: Json, dry: bool) -> tuple[Write, ...]:
    """Take back what waits in the VM's status: the start of a restart would undo a stop that comes after it."""
    pending: Any = object_at(vm, "status").get("stateChangeRequests")
    if not pending:
        return ()
    patch = [patches.test(_REQUESTS, pending), patches.remove(_REQUESTS)]
    return (Write(VMS, call.namespace, patch, call.name, "status", dry),)


def _set_grace(call: Call, vmi: Json, seconds: int, dry: bool) -> Write:
    old: Any = object_at(vmi, "spec").get("terminationGracePeriodSeconds")
    if old is None:
        patch, undo = [patches.test(_GRACE, None), patches.add(_GRACE, seconds)], [patches.remove(_GRACE)]
    else:
        patch, undo = [patches.test(_GRACE, old), patches.replace(_GRACE, seconds)], [patches.replace(_GRACE, old)]
    return Write(VMIS, call.namespace, patch, call.name, dry_run=dry, undo=undo)

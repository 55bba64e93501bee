"""`status.printableStatus`: one word for people; the first that holds wins."""

from collections.abc import Callable
from typing import Final

from anyvisor.api.meta import is_deleting, list_at, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.conditions import has, parse_timestamp
from anyvisor.controller.vm import data_volumes
from anyvisor.controller.vm.run_strategy import strategy_of
from anyvisor.controller.vm.start_failure import RESTARTING, is_final
from anyvisor.controller.vm.strategies import set_to_start
from anyvisor.controller.vm.world import VmPass

BEFORE_RUNNING: Final = frozenset({words.UNSET, words.PENDING, words.SCHEDULING, words.SCHEDULED})


def printable_status(run: VmPass) -> str:
    """The word for the VM's present state."""
    return next((word for word, holds in _ORDER if holds(run)), "Unknown")


def _phase(run: VmPass) -> str | None:
    return text_at(run.vmi, "status", "phase") if run.vmi is not None else None


def _condition(run: VmPass, type_: str, status: str, reason: str | None = None) -> bool:
    return run.vmi is not None and has(list_at(run.vmi, "status", "conditions"), type_, status, reason)


def _terminating(run: VmPass) -> bool:
    return is_deleting(run.vm)


def _stopping(run: VmPass) -> bool:
    return run.vmi is not None and not is_final(run.vmi) and (is_deleting(run.vmi) or run.stop_expected)


def _migrating(run: VmPass) -> bool:
    state = object_at(run.vmi or {}, "status", "migrationState")
    start = parse_timestamp(state.get("startTimestamp"))
    end = parse_timestamp(state.get("endTimestamp"))
    return start is not None and start <= run.world.now and (end is None or end > run.world.now)


def _paused(run: VmPass) -> bool:
    return _phase(run) == words.RUNNING and _condition(run, words.PAUSED, "True")


def _running(run: VmPass) -> bool:
    return _phase(run) == words.RUNNING and not _condition(run, words.PAUSED, "True")


def _claim_not_found(run: VmPass) -> bool:
    return _condition(run, words.SYNCHRONIZED, "False", words.PVC_NOT_FOUND)


def _data_volume_error(run: VmPass) -> bool:
    return any(data_volumes.broken(found) for found in data_volumes.used(run))


def _unschedulable(run: VmPass) -> bool:
    return _condition(run, words.POD_SCHEDULED, "False", words.UNSCHEDULABLE)


def _provisioning(run: VmPass) -> bool:
    return any(data_volumes.in_progress(found) for found in data_volumes.used(run))


def _waiting_for_binding(run: VmPass) -> bool:
    return set_to_start(run) and data_volumes.unbound_claim(run)


def _pull_failed(run: VmPass) -> bool:
    return _condition(run, words.SYNCHRONIZED, "False", words.ERR_IMAGE_PULL)


def _pull_backs_off(run: VmPass) -> bool:
    return _condition(run, words.SYNCHRONIZED, "False", words.IMAGE_PULL_BACK_OFF)


def _starting(run: VmPass) -> bool:
    return run.start_expected if run.vmi is None else _phase(run) in BEFORE_RUNNING


def _crash_loop(run: VmPass) -> bool:
    if run.start_expected or (run.vmi is not None and not is_final(run.vmi)):
        return False
    failures = object_at(run.vm, "status", "startFailure").get("consecutiveFailCount")
    return bool(failures) and strategy_of(run.vm) in RESTARTING


def _stopped(run: VmPass) -> bool:
    return not run.start_expected if run.vmi is None else is_final(run.vmi)


def _waiting_for_receiver(run: VmPass) -> bool:
    waits = run.vmi is None or _phase(run) == words.WAITING_FOR_SYNC
    return waits and strategy_of(run.vm) == "WaitAsReceiver"


_ORDER: Final[tuple[tuple[str, Callable[[VmPass], bool]], ...]] = (
    ("Terminating", _terminating),
    ("Stopping", _stopping),
    ("Migrating", _migrating),
    ("Paused", _paused),
    ("Running", _running),
    ("ErrorPvcNotFound", _claim_not_found),
    ("DataVolumeError", _data_volume_error),
    ("ErrorUnschedulable", _unschedulable),
    ("Provisioning", _provisioning),
    ("WaitingForVolumeBinding", _waiting_for_binding),
    ("ErrImagePull", _pull_failed),
    ("ImagePullBackOff", _pull_backs_off),
    ("Starting", _starting),
    ("CrashLoopBackOff", _crash_loop),
    ("Stopped", _stopped),
    ("WaitingForReceiver", _waiting_for_receiver),
)

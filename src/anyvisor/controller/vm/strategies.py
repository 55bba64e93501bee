"""What each run strategy does with an instance that exists, ended or is absent.

The table is KubeVirt's (user guide, "Run Strategies"): Always and RerunOnFailure restart, Manual follows
requests only, Halted stops, Once starts whenever no instance exists, WaitAsReceiver waits for a migration.
"""

from anyvisor.api.meta import Json, annotations, is_deleting, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Change, Problem
from anyvisor.controller.vm import instance, requests
from anyvisor.controller.vm.run_strategy import strategy_of
from anyvisor.controller.vm.start_failure import backoff_left, is_final
from anyvisor.controller.vm.world import VmPass
from anyvisor.kube.resources import VMS


def apply(run: VmPass) -> None:
    """Bring the instance to what the run strategy asks for."""
    strategy = strategy_of(run.vm)
    match strategy:
        case "Always":
            _always(run)
        case "RerunOnFailure":
            _rerun_on_failure(run)
        case "Manual":
            _manual(run)
        case "Halted":
            _halted(run)
        case "Once":
            if run.vmi is None:
                instance.start(run)
        case "WaitAsReceiver":
            _wait_as_receiver(run)
        case _:
            message = f"spec.runStrategy {strategy!r} is unknown; use Always, RerunOnFailure, Manual or Halted"
            run.draft.problem = Problem(words.FAILED_CREATE, message, retry=False)


def set_to_start(run: VmPass) -> bool:
    """Whether the VM is meant to have a starting or running instance."""
    vmi = run.vmi
    strategy = strategy_of(run.vm)
    match strategy:
        case "Always":
            return True
        case "Manual":
            return requests.wants_start(run.vm) if vmi is None else not requests.wants_stop(run.vm, vmi)
        case "RerunOnFailure":
            if vmi is None:
                return _rerun_starts(run.vm)
            return text_at(vmi, "status", "phase") != words.SUCCEEDED
        case "Once":
            return vmi is None
        case _:
            return False


def _always(run: VmPass) -> None:
    vmi = run.vmi
    if vmi is None:
        _start_after_backoff(run)
    elif (requests.wants_stop(run.vm, vmi) or is_final(vmi)) and not _leaves_to_migration(run, vmi):
        instance.stop(run)


def _rerun_on_failure(run: VmPass) -> None:
    vmi = run.vmi
    if vmi is None:
        if _rerun_starts(run.vm):
            _start_after_backoff(run)
        return
    if is_deleting(vmi) or not (is_final(vmi) or requests.wants_stop(run.vm, vmi)):
        return
    instance.stop(run)
    if text_at(vmi, "status", "phase") == words.FAILED:
        requests.add_start(run.vm)


def _rerun_starts(vm: Json) -> bool:
    """Without a request, this strategy starts only when it is new to the VM: a clean end stays an end."""
    return requests.wants_start(vm) or text_at(vm, "status", "runStrategy") != "RerunOnFailure"


def _manual(run: VmPass) -> None:
    if run.vmi is None:
        if requests.wants_start(run.vm):
            instance.start(run)
    elif requests.wants_stop(run.vm, run.vmi):
        instance.stop(run)


def _halted(run: VmPass) -> None:
    if run.vmi is not None:
        instance.stop(run)
    elif requests.wants_start(run.vm):
        _follow_start_request(run)


def _follow_start_request(run: VmPass) -> None:
    """A start request on a halted VM (as `start --paused` leaves it) changes the strategy first."""
    after = duplicate(run.world.vm)
    if after["spec"].get("runStrategy") is not None:
        after["spec"]["runStrategy"] = "Always"
    else:
        after["spec"]["running"] = True
    run.draft.writes.append(Change(VMS, run.world.vm, after))
    message = "A start was requested: the run strategy changes to Always first."
    run.draft.problem = Problem(words.FAILED_CREATE, message)


def _wait_as_receiver(run: VmPass) -> None:
    vmi = run.vmi
    if vmi is None:
        instance.start(run)
        return
    if annotations(vmi).get(words.CREATE_MIGRATION_TARGET) == "true":
        return
    if object_at(vmi, "status", "migrationState").get("completed") is True:
        restored = annotations(run.vm).get(words.RESTORE_RUN_STRATEGY)
        if restored:
            after = duplicate(run.world.vm)
            after["spec"]["runStrategy"] = restored
            run.draft.writes.append(Change(VMS, run.world.vm, after))
        return
    message = (
        "spec.runStrategy is WaitAsReceiver, but the instance was not started as a receiver; "
        "stop it or change the run strategy"
    )
    run.draft.problem = Problem(words.FAILED_CREATE, message)


def _start_after_backoff(run: VmPass) -> None:
    left = backoff_left(run)
    if left > 0:
        run.draft.again(left)
    else:
        instance.start(run)


def _leaves_to_migration(run: VmPass, vmi: Json) -> bool:
    """An instance that moved away to another cluster is not restarted here: the VM becomes halted."""
    state = object_at(vmi, "status", "migrationState")
    source, target = state.get("sourceState"), state.get("targetState")
    if not isinstance(source, dict) or not isinstance(target, dict):
        return False
    if ("syncAddress" in source) == ("syncAddress" in target):
        return False
    if state.get("completed") is True:
        after = duplicate(run.world.vm)
        after["spec"]["runStrategy"] = "Halted"
        run.draft.writes.append(Change(VMS, run.world.vm, after))
    else:
        run.draft.again(2.0)
    return True

"""The phases of an instance up to the hand-over to its node, and after the guest has ended.

"" -> Pending -> Scheduling -> Scheduled are this controller's; Running, Succeeded and Failed are the node
agent's, except where no pod is left that could tell.
"""

from anyvisor.api.meta import Json, annotations, condition, finalizers, is_deleting, list_at, object_at, text_at
from anyvisor.api.quantity import parse_quantity
from anyvisor.controller import words
from anyvisor.controller.conditions import copied, find, has, make, remove, timestamp, update
from anyvisor.controller.outcome import EventType, Problem
from anyvisor.controller.vm.data_volumes import claim_name
from anyvisor.controller.vmi import claims, interfaces, owner, pods, topology, volume_status
from anyvisor.controller.vmi.world import UnfinishedPassError, VmiPass

GUARANTEED = "Guaranteed"


def advance(run: VmiPass, pod: Json | None, volumes: list[Json]) -> None:
    """Set the phase and what belongs to it. Raises UnfinishedPassError."""
    launcher = pod if pod is not None and not pods.is_temporary(pod) else None
    match run.phase:
        case words.UNSET | words.PENDING:
            _unprocessed(run, pod, launcher, volumes)
        case words.SCHEDULING:
            _scheduling(run, launcher)
        case words.SUCCEEDED | words.FAILED:
            _final(run)
        case words.RUNNING:
            _running(run, launcher)
        case words.SCHEDULED:
            _scheduled(run, launcher)
        case words.WAITING_FOR_SYNC:
            _waiting(run, launcher)
        case unknown:
            raise UnfinishedPassError(f"phase {unknown!r} is not known to this version; upgrade the controller")


def _set(run: VmiPass, phase: str) -> None:
    run.status["phase"] = phase


def _unprocessed(run: VmiPass, pod: Json | None, launcher: Json | None, volumes: list[Json]) -> None:
    failed = claims.any_in_phase(volumes, "Failed")
    if launcher is not None:
        _set(run, words.SCHEDULING)
    elif is_deleting(run.world.vmi) or failed:
        _set(run, words.FAILED)
    elif run.waits_for_source:
        _set(run, words.WAITING_FOR_SYNC)
        topology.add_hint(run)
    else:
        _set(run, words.PENDING)
        topology.add_hint(run)
        if claims.any_in_phase(volumes, "WaitForFirstConsumer"):
            _provisioning(run, pod)
        _missing_claim(run)


def _provisioning(run: VmiPass, pod: Json | None) -> None:
    if find(run.conditions, words.PROVISIONING) is None:
        message = "The instance's volumes are being filled."
        update(run.conditions, make(words.PROVISIONING, "True", "", message, run.world.now))
    if pod is None:
        return
    _follow_scheduling(run, pod)
    if pods.failed_or_going(pod):
        _set(run, words.FAILED)


def _follow_scheduling(run: VmiPass, pod: Json) -> None:
    """Show why the pod finds no node, while it finds none."""
    found = condition(pod, words.POD_SCHEDULED)
    if found is None or found.get("status") != "False":
        remove(run.conditions, words.POD_SCHEDULED)
    elif find(run.conditions, words.POD_SCHEDULED) is None:
        run.conditions.append(copied(found))


def _missing_claim(run: VmiPass) -> None:
    """A missing claim looks to clients like a pod that cannot be scheduled, as with ordinary pods."""
    if run.problem is None or run.problem.reason != words.PVC_NOT_FOUND:
        return
    remove(run.conditions, words.POD_SCHEDULED)
    message = run.problem.message
    run.conditions.append(make(words.POD_SCHEDULED, "False", words.UNSCHEDULABLE, message, run.world.now))


def _scheduling(run: VmiPass, launcher: Json | None) -> None:
    remove(run.conditions, words.PROVISIONING)
    if launcher is None:
        _lost(run)
        return
    run.status["qosClass"] = text_at(launcher, "status", "qosClass")
    _follow_scheduling(run, launcher)
    error = pods.image_error(launcher) or pods.waits_for(launcher)
    if error is not None:
        run.problem = Problem(error[0], error[1], retry=False)
    if pods.is_ready(launcher) and not is_deleting(run.world.vmi):
        _hand_over(run, launcher)
    elif pods.is_down_or_going(launcher):
        _lost(run)


def _lost(run: VmiPass) -> None:
    _set(run, words.WAITING_FOR_SYNC if run.migration_target else words.FAILED)


def _hand_over(run: VmiPass, launcher: Json) -> None:
    dedicated = object_at(run.vmi, "spec", "domain", "cpu").get("dedicatedCpuPlacement") is True
    if dedicated and text_at(launcher, "status", "qosClass") != GUARANTEED:
        message = "The instance asks for dedicated CPUs, but its pod did not get guaranteed resources."
        run.draft.event(EventType.WARNING, "FailedGuaranteeResources", message)
        run.problem = Problem("FailedGuaranteeResources", message, retry=False)
        return
    volume_status.sync(run, launcher)
    interfaces.sync_status(run, launcher)
    node = text_at(launcher, "spec", "nodeName")
    _set(run, words.SCHEDULED)
    run.vmi["metadata"].setdefault("labels", {})[words.NODE_NAME_LABEL] = node
    run.status["nodeName"] = node
    if words.TRANSPORT_UNIX in annotations(launcher):
        run.status["migrationTransport"] = "Unix"
    devices = object_at(run.vmi, "spec", "domain", "devices")
    if devices.get("autoattachVSOCK") is True and "VSOCKCID" not in run.status:
        run.status["VSOCKCID"] = run.world.vsock_id()


def _final(run: VmiPass) -> None:
    """Let the object go when none of its pods is left."""
    kept = finalizers(run.vmi)
    if not pods.owned(run):
        kept = [one for one in kept if one not in {words.VMI_FINALIZER, words.VMI_FINALIZER_OLD}]
        object_at(run.vmi, "metadata", "labels").pop(words.OUTDATED_LAUNCHER_LABEL, None)
        run.status["launcherContainerImageVersion"] = ""
    _keep_finalizers(run, kept)


def _keep_finalizers(run: VmiPass, kept: list[str]) -> None:
    """A VM that is gone cannot take its own finalizer off."""
    if not owner.has_owner_vm(run):
        kept = [one for one in kept if one != words.VM_FINALIZER]
    if kept != finalizers(run.vmi):
        run.vmi["metadata"]["finalizers"] = kept


def _running(run: VmiPass, launcher: Json | None) -> None:
    if launcher is None:
        _set(run, words.FAILED)
        return
    if pods.phase(launcher) == "Succeeded" and _moved_away(run):
        _set(run, words.SUCCEEDED)
        return
    volume_status.sync(run, launcher)
    interfaces.sync_status(run, launcher)
    if _sockets_differ(run):
        _mark(run, words.VCPU_CHANGE)
    if _memory_differs(run):
        _mark(run, words.MEMORY_CHANGE)
        ratio = run.world.settings.overhead_ratio
        if ratio:
            run.vmi["metadata"].setdefault("labels", {})[words.MEMORY_HOTPLUG_RATIO_LABEL] = ratio
    if _volumes_move(run):
        message = "Volumes of the instance are to move to other claims."
        update(run.conditions, make(words.VOLUMES_CHANGE, "True", "", message, run.world.now))
    interfaces.sync_migration_required(run, launcher)


def _moved_away(run: VmiPass) -> bool:
    state = object_at(run.vmi, "status", "migrationState")
    source, target = object_at(state, "sourceState"), object_at(state, "targetState")
    other_cluster = ("syncAddress" in source) != ("syncAddress" in target)
    return bool(source) and bool(target) and other_cluster and state.get("completed") is True


def _mark(run: VmiPass, type_: str) -> None:
    if find(run.conditions, type_) is None:
        run.conditions.append({"type": type_, "status": "True"})


def _sockets_differ(run: VmiPass) -> bool:
    cpu = object_at(run.vmi, "spec", "domain", "cpu")
    now = object_at(run.vmi, "status", "currentCPUTopology")
    if not now or not cpu.get("maxSockets"):
        return False
    return _count(cpu) != _count(now)


def _count(topology_: Json) -> int:
    total = 1
    for part in ("cores", "sockets", "threads"):
        total *= topology_.get(part) or 1
    return total


def _memory_differs(run: VmiPass) -> bool:
    memory = object_at(run.vmi, "spec", "domain", "memory")
    requested = object_at(run.vmi, "status", "memory").get("guestRequested")
    if not memory.get("guest") or not memory.get("maxGuest") or not object_at(run.vmi, "status", "memory"):
        return False
    return parse_quantity(memory["guest"]) != parse_quantity(requested or 0)


def _volumes_move(run: VmiPass) -> bool:
    moved = list_at(run.vmi, "status", "migratedVolumes")
    if not moved or find(run.conditions, words.VOLUMES_CHANGE) is not None:
        return False
    sources = {text_at(one, "sourcePVCInfo", "claimName") for one in moved}
    used = {claim_name(volume) for volume in list_at(run.vmi, "spec", "volumes")} - {""}
    return bool(used - sources)


def _scheduled(run: VmiPass, launcher: Json | None) -> None:
    failed = object_at(run.vmi, "status", "migrationState").get("failed") is True
    down = launcher is None or (run.migration_target and (pods.is_down(launcher) or failed))
    if launcher is None or down:
        _lost(run)
        state = object_at(run.vmi, "status", "migrationState")
        if run.migration_target and state:
            state |= {"failed": True, "completed": True, "endTimestamp": timestamp(run.world.now)}
        return
    volume_status.sync(run, launcher)


def _waiting(run: VmiPass, launcher: Json | None) -> None:
    """A receiving instance that waits for the source to tell its node."""
    failed = object_at(run.vmi, "status", "migrationState").get("failed") is True
    if is_deleting(run.world.vmi):
        gone = {words.VMI_FINALIZER, words.VMI_FINALIZER_OLD}
        _keep_finalizers(run, [one for one in finalizers(run.vmi) if one not in gone])
    elif launcher is not None and not failed and not (run.migration_target and pods.is_down(launcher)):
        _set(run, words.SCHEDULING)


def is_synchronized(run: VmiPass) -> None:
    """Set Synchronized to what the pass ran into, or drop it."""
    problem = run.problem
    if problem is None:
        remove(run.conditions, words.SYNCHRONIZED)
    elif not has(run.conditions, words.SYNCHRONIZED, "False", problem.reason):
        remove(run.conditions, words.SYNCHRONIZED)
        run.conditions.append(make(words.SYNCHRONIZED, "False", problem.reason, problem.message, run.world.now))

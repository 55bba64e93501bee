"""One pass over a VirtualMachine."""

from anyvisor.api.meta import (
    Json,
    annotations,
    controller_of,
    finalizers,
    generation,
    is_deleting,
    object_at,
    text_at,
    uid,
)
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Change, Outcome, Problem
from anyvisor.controller.semantic import equal
from anyvisor.controller.versions import version_seen
from anyvisor.controller.vm import data_volumes, instance, strategies, types
from anyvisor.controller.vm.followed import follow_annotations
from anyvisor.controller.vm.live_updates import apply_live_updates
from anyvisor.controller.vm.restart_required import sync_restart_required
from anyvisor.controller.vm.revisions import last_started_spec, revision_generation, vm_reference
from anyvisor.controller.vm.run_strategy import strategy_of
from anyvisor.controller.vm.start_failure import is_final
from anyvisor.controller.vm.status import update_status
from anyvisor.controller.vm.volume_requests import apply_volume_requests
from anyvisor.controller.vm.world import VmPass, VmWorld, begin, template_spec
from anyvisor.kube.resources import VMIS, VMS


def reconcile_vm(world: VmWorld) -> Outcome:
    """Bring the VM's instance to what its run strategy asks for, and its status to what is."""
    seen = version_seen(world.vm)
    if seen is not None:
        return Outcome((Change(VMS, world.vm, seen),))
    run = begin(world, _owned_instance(world))
    _adopt(run)
    _act(run)
    update_status(run)
    if not equal(run.vm["status"], object_at(world.vm, "status")):
        run.draft.writes.append(Change(VMS, world.vm, {**world.vm, "status": run.vm["status"]}, status=True))
    _release_instance(run)
    return run.draft.outcome()


def with_failure(world: VmWorld, problem: Problem) -> Outcome:
    """The status of a VM of which a write was refused."""
    run = begin(world, _owned_instance(world))
    run.draft.problem = problem
    update_status(run)
    if equal(run.vm["status"], object_at(world.vm, "status")):
        return Outcome(problem=problem)
    after = {**world.vm, "status": run.vm["status"]}
    return Outcome((Change(VMS, world.vm, after, status=True),), problem=problem)


def _owned_instance(world: VmWorld) -> Json | None:
    """The instance if this VM controls it or may adopt it; one of another owner is not ours to touch."""
    vmi = world.vmi
    if vmi is None:
        return None
    owner = controller_of(vmi)
    if owner is not None:
        return vmi if owner.get("uid") == uid(world.vm) else None
    return None if is_deleting(world.vm) or is_deleting(vmi) else vmi


def _adopt(run: VmPass) -> None:
    vmi = run.vmi
    if vmi is None or controller_of(vmi) is not None:
        return
    after = duplicate(vmi)
    owners = [*after["metadata"].get("ownerReferences", []), vm_reference(run.vm)]
    after["metadata"]["ownerReferences"] = owners
    kept = finalizers(after)
    after["metadata"]["finalizers"] = kept if words.VM_FINALIZER in kept else [*kept, words.VM_FINALIZER]
    _change_instance(run, after)


def _act(run: VmPass) -> None:
    started = last_started_spec(run) if run.vmi is not None else None
    if is_deleting(run.vm):
        _delete(run)
        return
    _set_finalizers(run, [*finalizers(run.vm), words.VM_FINALIZER])
    resolved = types.resolve(run)
    _bump_generation(run)
    if not resolved or not _data_volumes_allow(run):
        return
    strategies.apply(run)
    if run.draft.problem is not None:
        return
    restart = sync_restart_required(run, started)
    if run.settled:
        _carry_changes(run, restart=restart)


def _delete(run: VmPass) -> None:
    if run.vmi is None or words.ORPHAN_FINALIZER in finalizers(run.vm):
        _set_finalizers(run, [one for one in finalizers(run.vm) if one != words.VM_FINALIZER])
    else:
        instance.stop(run)


def _set_finalizers(run: VmPass, wanted: list[str]) -> None:
    wanted = list(dict.fromkeys(wanted))
    if wanted == finalizers(run.vm):
        return
    after = duplicate(run.world.vm)
    after["metadata"]["finalizers"] = wanted
    run.vm["metadata"]["finalizers"] = wanted
    run.draft.writes.append(Change(VMS, run.world.vm, after))


def _bump_generation(run: VmPass) -> None:
    """Note on the instance which generation of the VM it embodies; an unchanged template embodies it too."""
    vmi = run.vmi
    if vmi is None or annotations(vmi).get(words.VM_GENERATION) == str(generation(run.vm)):
        return
    name = text_at(vmi, "status", "virtualMachineRevisionName")
    revision = run.world.revisions.get(name)
    if revision is None:
        return
    seen: int | None = None
    if equal(object_at(revision, "data", "spec", "template"), object_at(run.effective, "spec", "template")):
        seen = generation(run.vm)
    elif words.VM_GENERATION not in annotations(vmi):
        seen = revision_generation(name)
    if seen is None:
        return
    after = duplicate(vmi)
    after["metadata"].setdefault("annotations", {})[words.VM_GENERATION] = str(seen)
    _change_instance(run, after)


def _data_volumes_allow(run: VmPass) -> bool:
    """Have DataVolumes made at once, unless the VM asks to make them at its start."""
    if annotations(run.vm).get(words.IMMEDIATE_DATA_VOLUMES) == "false":
        return True
    ready = data_volumes.ensure(run)
    return run.draft.problem is None and (ready or strategy_of(run.vm) == "Halted")


def _carry_changes(run: VmPass, *, restart: bool) -> None:
    before = duplicate(template_spec(run.vm))
    instance.keep_firmware_uuid(run.vm)
    apply_volume_requests(run.vm)
    if template_spec(run.vm) != before:
        after = {**duplicate(run.world.vm), "spec": run.vm["spec"]}
        run.draft.writes.append(Change(VMS, run.world.vm, after))
    follow_annotations(run)
    if not restart:
        apply_live_updates(run)


def _change_instance(run: VmPass, after: Json) -> None:
    assert run.vmi is not None
    run.draft.writes.append(Change(VMIS, run.vmi, after))
    run.vmi = after


def _release_instance(run: VmPass) -> None:
    """Let an ended instance go, now that all it had to tell is in the VM's status."""
    vmi = run.vmi
    if vmi is None or words.VM_FINALIZER not in finalizers(vmi):
        return
    waits = text_at(vmi, "status", "phase") == words.WAITING_FOR_SYNC and is_deleting(vmi)
    if not is_final(vmi) and not waits:
        return
    after = duplicate(vmi)
    after["metadata"]["finalizers"] = [one for one in finalizers(vmi) if one != words.VM_FINALIZER]
    _change_instance(run, after)

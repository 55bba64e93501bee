"""The status of a VM: what is mirrored from its instance, and what the pass itself found."""

from anyvisor.api.meta import Json, annotations, generation, list_at, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.conditions import copied, find, has, make, remove, update
from anyvisor.controller.vm import requests
from anyvisor.controller.vm.memory_dump import end_request
from anyvisor.controller.vm.printable import printable_status
from anyvisor.controller.vm.run_strategy import strategy_of
from anyvisor.controller.vm.start_failure import is_final, sync_start_failure
from anyvisor.controller.vm.volume_requests import trim_volume_requests
from anyvisor.controller.vm.world import VmPass, template_spec, volumes

NOT_MIRRORED = frozenset({words.READY, words.FAILURE, words.RESTART_REQUIRED})
"""Conditions of the VM that are its own and not copies of the instance's."""


def update_status(run: VmPass) -> None:
    """Bring the status of the working copy up to date."""
    status = run.vm["status"]
    vmi = run.vmi
    status["created"] = vmi is not None
    status["ready"] = vmi is not None and has(list_at(vmi, "status", "conditions"), words.READY, "True")
    if vmi is not None:
        _mirror_instance(run, vmi)
    if text_at(run.vm, "status", "runStrategy") or vmi is not None:
        status["runStrategy"] = strategy_of(run.world.vm)
    trim_volume_requests(run.vm)
    end_request(run)
    requests.trim(run.vm, vmi)
    sync_start_failure(run)
    _sync_volume_migration(run)
    _sync_conditions(run)
    status["printableStatus"] = printable_status(run)


def _mirror_instance(run: VmPass, vmi: Json) -> None:
    status = run.vm["status"]
    seen = annotations(vmi).get(words.VM_GENERATION)
    if seen is not None and seen.isdecimal():
        status["observedGeneration"] = int(seen)
        status["desiredGeneration"] = generation(run.vm)
    class_name = text_at(vmi, "status", "hypervisor", "class")
    if class_name:
        status["hypervisor"] = {"class": class_name}


def _sync_conditions(run: VmPass) -> None:
    conditions = run.vm["status"].setdefault("conditions", [])
    _sync_ready(run, conditions)
    if run.draft.problem is not None:
        problem = run.draft.problem
        update(conditions, make(words.FAILURE, "True", problem.reason, problem.message, run.world.now))
    else:
        remove(conditions, words.FAILURE)
    if run.vmi is None:
        return
    mirrored = [entry for entry in list_at(run.vmi, "status", "conditions") if entry.get("type") not in NOT_MIRRORED]
    for entry in mirrored:
        update(conditions, copied(entry))
    kept = {entry.get("type") for entry in mirrored} | NOT_MIRRORED
    conditions[:] = [entry for entry in conditions if entry.get("type") in kept]


def _sync_ready(run: VmPass, conditions: list[Json]) -> None:
    now = run.world.now
    if run.vmi is None:
        update(conditions, make(words.READY, "False", "VMINotExists", "No instance exists.", now))
        return
    ready = find(list_at(run.vmi, "status", "conditions"), words.READY)
    if ready is None:
        message = "The instance has no Ready condition yet."
        update(conditions, make(words.READY, "False", "VMIConditionMissing", message, now))
    else:
        update(conditions, copied(ready))


def _sync_volume_migration(run: VmPass) -> None:
    """Follow a migration of volumes to other claims to its end, or to a stop that needs a person."""
    state = object_at(run.vm, "status", "volumeUpdateState")
    if not object_at(state, "volumeMigrationState"):
        return
    conditions = run.vm["status"].setdefault("conditions", [])
    if _volumes_recovered(run.vm) or text_at(run.vm, "spec", "updateVolumesStrategy") != "Migration":
        state.pop("volumeMigrationState")
        remove(conditions, words.VOLUMES_CHANGE)
        remove(conditions, words.MANUAL_RECOVERY_REQUIRED)
        return
    if run.vmi is None or is_final(run.vmi):
        if has(conditions, words.VOLUMES_CHANGE, "True"):
            reason = "VMI was removed or was final during the volume migration"
            message = (
                "The instance ended while its volumes moved; compare both claims, set spec.template.spec.volumes "
                "to the good one, and start again."
            )
            update(conditions, make(words.MANUAL_RECOVERY_REQUIRED, "True", reason, message, run.world.now))
        return
    change = find(list_at(run.vmi, "status", "conditions"), words.VOLUMES_CHANGE)
    if change is not None and change.get("status") == "False" and change.get("reason") == "VolumesChangeCancellation":
        state.pop("volumeMigrationState")


def _volumes_recovered(vm: Json) -> bool:
    moved = list_at(vm, "status", "volumeUpdateState", "volumeMigrationState", "migratedVolumes")
    sources = {
        entry.get("volumeName"): text_at(entry, "sourcePVCInfo", "claimName")
        for entry in moved
        if object_at(entry, "sourcePVCInfo")
    }
    for volume in volumes(template_spec(vm)):
        claim = text_at(volume, "dataVolume", "name") or text_at(volume, "persistentVolumeClaim", "claimName")
        if sources.get(volume.get("name"), claim) != claim:
            return False
    return True

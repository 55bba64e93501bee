"""Replays recorded passes over a VirtualMachine."""

import copy
from typing import Any

import jsonpatch
from replaying import worlds

from anyvisor.api import instancetypes
from anyvisor.api.meta import Json, controller_of, uid
from anyvisor.controller.outcome import Change, Outcome
from anyvisor.controller.settings import Settings
from anyvisor.controller.vm.reconcile import reconcile_vm
from anyvisor.controller.vm.world import VmWorld


def replay(case: Json) -> list[str]:
    """The differences between the recorded outcome and ours; empty when they are equal."""
    world = world_of(case)
    if world is None:
        return ["the case has no VirtualMachine of its name"]
    vm, vmi = world.vm, world.vmi
    outcome = reconcile_vm(world)
    owned = vmi is not None and (controller_of(vmi) or {}).get("uid", uid(vm)) == uid(vm)
    return _compare(case["expect"], outcome, vm, vmi if owned else None)


def world_of(case: Json) -> VmWorld | None:
    """The world that a case tells of; None where its VM does not exist."""
    vm = worlds.subject(case, "VirtualMachine")
    if vm is None:
        return None
    return VmWorld(
        vm=vm,
        vmi=worlds.subject(case, "VirtualMachineInstance"),
        now=worlds.NOW,
        jitter=lambda _: 0,
        revisions=worlds.by_name(worlds.of_kind(case, "ControllerRevision")),
        data_volumes=worlds.by_name(worlds.of_kind(case, "DataVolume")),
        claims=worlds.by_name(worlds.of_kind(case, "PersistentVolumeClaim")),
        types=_types(case, vm),
        settings=Settings(case["in"].get("config") or {}),
    )


def _types(case: Json, vm: Json) -> dict[str, Json]:
    """The instance type and the preference of the world that the VM refers to."""
    found: dict[str, Json] = {}
    for field in instancetypes.KINDS:
        wanted = instancetypes.referred(vm["spec"], field)
        known = worlds.by_name(worlds.of_kind(case, wanted[0])) if wanted is not None else {}
        if wanted is not None and wanted[1] in known:
            found[field] = known[wanted[1]]
    return found


def _compare(want: Json, outcome: Outcome, vm: Json, vmi: Json | None) -> list[str]:
    after = _after(outcome, "virtualmachines", vm)
    status = {key: value for key, value in after.get("status", {}).items() if key != "conditions"}
    created = [one.object for one in worlds.creates(outcome) if one.resource.plural == _VMIS]
    volumes = [["POST", one.object["metadata"]["name"]] for one in worlds.creates(outcome) if _is_volume(one)]
    found: list[str] = []
    pairs: list[tuple[str, Any, Any]] = [
        ("conditions", want["conditions"], worlds.conditions(after.get("status", {}))),
        ("events", sorted(want["events"]), worlds.events(outcome)),
        ("status", want["status"], status),
        ("vmiCreated", want.get("vmiCreated"), _shape(created[0]) if created else None),
        ("vmiDeleted", want.get("vmiDeleted"), any(one.startswith(_VMIS) for one in worlds.deletes(outcome))),
        ("dataVolumes", want.get("dataVolumes"), volumes),
        ("error", "error" in want, outcome.problem is not None),
        ("vm", _patched(vm, want.get("vmChanged")), _without_status(after)),
    ]
    if vmi is not None:
        changed = _after(outcome, _VMIS, vmi)
        pairs.append(("vmi", _patched(vmi, want.get("vmiChanged")), _without_status(changed)))
    for path, expected, ours in pairs:
        found += worlds.differences(expected, ours, path)
    return found


_VMIS = "virtualmachineinstances"


def _is_volume(one: Any) -> bool:
    return one.resource.plural == "datavolumes"


def _shape(vmi: Json) -> Json:
    metadata = {key: value for key, value in vmi["metadata"].items() if key != "namespace"}
    return {"metadata": metadata, "spec": vmi["spec"]}


def _after(outcome: Outcome, plural: str, before: Json) -> Json:
    """The object after all changes; each change is complete for its part (status or the rest)."""
    result = copy.deepcopy(before)
    for write in outcome.writes:
        if not isinstance(write, Change) or write.resource.plural != plural:
            continue
        if write.status:
            result["status"] = write.after["status"]
        else:
            result = {**copy.deepcopy(write.after), "status": result.get("status", {})}
    return result


def _without_status(obj: Json) -> Json:
    return {"metadata": obj["metadata"], "spec": obj.get("spec")}


def _patched(before: Json, changes: list[Any] | None) -> Json:
    result = copy.deepcopy(before)
    for change in changes or []:
        if isinstance(change, dict):
            result["metadata"] |= change["metadata"]
            if "runStrategy" in change:
                result["spec"]["runStrategy"] = change["runStrategy"]
            continue
        operations = [one for one in change if one["op"] != "test" and not one["path"].startswith("/status")]
        for operation in operations:
            if operation["op"] == "replace" and operation["path"].count("/") == 2:
                operation = {**operation, "op": "add"}
            result = jsonpatch.apply_patch(result, [operation])
    return _without_status(result)

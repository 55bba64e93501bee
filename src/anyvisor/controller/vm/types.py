"""Instance type and preference of a VM: found, frozen in a ControllerRevision, and checked against the template.

What a VM was first resolved to holds until its reference names something else: an instance type that is changed or
deleted later changes no VM. Names and labels of the revisions are the API's.
"""

from typing import Final

from anyvisor.api import instancetypes
from anyvisor.api.meta import Json, controller_reference, generation, name, namespace, object_at, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Create, EventType, Problem
from anyvisor.controller.vm.world import VmPass
from anyvisor.kube.resources import CONTROLLER_REVISIONS

_VERSION: Final = "v1beta1"
_NOT_FOUND: Final = {"instancetype": "FailedFindInstancetype", "preference": "FailedFindPreference"}
_ANNOTATIONS: Final = {
    "VirtualMachineInstancetype": "kubevirt.io/instancetype-name",
    "VirtualMachineClusterInstancetype": "kubevirt.io/cluster-instancetype-name",
    "VirtualMachinePreference": "kubevirt.io/preference-name",
    "VirtualMachineClusterPreference": "kubevirt.io/cluster-preference-name",
}


def resolve(run: VmPass) -> bool:
    """Find what the VM refers to, and keep it; False when it says on the VM why that cannot be."""
    for field in instancetypes.KINDS:
        if not _resolve(run, field):
            return False
    conflicts = _applied(run)[1]
    if conflicts:
        fields = ", ".join(f"spec.template.{path}" for path in conflicts)
        refuse(run, f"VM field(s) {fields} conflicts with selected instance type")
    return not conflicts


def shortage(run: VmPass) -> str:
    """What the preference requires of a guest and this one would not have; empty = nothing."""
    return instancetypes.shortage(run.types.get("preference") or {}, _applied(run)[0])


def _applied(run: VmPass) -> tuple[Json, list[str]]:
    """The template with both applied, and the paths that template and instance type both set."""
    template = duplicate(object_at(run.vm, "spec", "template"))
    if not run.types:
        return template, []
    return template, instancetypes.apply(run.types.get("instancetype"), run.types.get("preference"), template)


def prefer(run: VmPass, vmi: Json) -> None:
    """Apply the preference to what a start adds beside the template: inputs, disks and networks by default."""
    wishes = run.types.get("preference")
    if wishes:
        instancetypes.apply(None, wishes, vmi)


def refuse(run: VmPass, message: str) -> None:
    """Say on the VM, and by an event, why no instance is started."""
    run.draft.problem = Problem(words.FAILED_CREATE, message, retry=False)
    run.draft.event(EventType.WARNING, words.FAILED_CREATE, message)


def _resolve(run: VmPass, field: str) -> bool:
    wanted = instancetypes.referred(object_at(run.vm, "spec"), field)
    reference = f"{field}Ref"
    if wanted is None:
        run.vm["status"].pop(reference, None)
        return True
    kind, called = wanted
    frozen = _frozen(run, field)
    if frozen is not None:
        run.types[field] = object_at(frozen, "data", "spec")
        _refer(run, field, name(frozen))
        return True
    found = run.world.types.get(field)
    if found is None:
        message = f"spec.{field} names {kind} {called!r}, which does not exist"
        run.draft.problem = Problem(_NOT_FOUND[field], message, retry=False)
        return False
    revision = _revision(run.vm, kind, found)
    if name(revision) not in run.world.revisions:
        run.draft.writes.append(Create(CONTROLLER_REVISIONS, revision))
    _refer(run, field, name(revision))
    run.types[field] = object_at(found, "spec")
    return True


def _frozen(run: VmPass, field: str) -> Json | None:
    """The revision that holds: the one that the spec names, else the one noted for the same reference."""
    matcher, noted = object_at(run.vm, "spec", field), object_at(run.world.vm, "status", f"{field}Ref")
    named = text_at(matcher, "revisionName")
    same = all(text_at(matcher, key) == text_at(noted, key) for key in ("name", "kind"))
    wanted = named or (text_at(noted, "controllerRevisionRef", "name") if same else "")
    return run.world.revisions.get(wanted)


def _refer(run: VmPass, field: str, revision: str) -> None:
    matcher = object_at(run.vm, "spec", field)
    kept = {key: matcher[key] for key in ("name", "kind") if matcher.get(key)}
    run.vm["status"][f"{field}Ref"] = {**kept, "controllerRevisionRef": {"name": revision}}


def _revision(vm: Json, kind: str, found: Json) -> Json:
    number, own = generation(found), uid(found)
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": f"{name(vm)}-{name(found)}-{_VERSION}-{own}-{number}",
            "namespace": namespace(vm),
            "labels": {
                f"{instancetypes.GROUP}/object-generation": str(number),
                f"{instancetypes.GROUP}/object-kind": kind,
                f"{instancetypes.GROUP}/object-name": name(found),
                f"{instancetypes.GROUP}/object-uid": own,
                f"{instancetypes.GROUP}/object-version": _VERSION,
            },
            "ownerReferences": [controller_reference({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", **vm})],
        },
        "data": {"apiVersion": f"{instancetypes.GROUP}/{_VERSION}", "kind": kind, **duplicate(found)},
        "revision": 0,
    }


def annotations(vm: Json) -> dict[str, str]:
    """What the instance says of its origin."""
    found = (instancetypes.referred(object_at(vm, "spec"), field) for field in instancetypes.KINDS)
    return {_ANNOTATIONS[one[0]]: one[1] for one in found if one is not None}

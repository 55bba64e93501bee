"""expand-spec and expand-vm-spec: a VM as it would run, with instance type, preference and defaults in it."""

from collections.abc import Callable
from typing import Final

import msgspec

from anyvisor.admission.defaults.filler import Filler
from anyvisor.admission.defaults.spec import fill_common
from anyvisor.admission.values import clone, mapping, text
from anyvisor.api import instancetypes
from anyvisor.api.kubevirt.vm import VirtualMachine
from anyvisor.api.meta import Json, StatusCause, object_at, text_at
from anyvisor.gateway.answers import Decision, Refused, bad_request, entity, internal
from anyvisor.gateway.call import Call, options
from anyvisor.gateway.world import Need, World

API: Final = "kubevirt.io/v1"
_PLURALS: Final = {
    "instancetype": ("virtualmachineinstancetypes", "virtualmachineclusterinstancetypes"),
    "preference": ("virtualmachinepreferences", "virtualmachineclusterpreferences"),
}
"""Plurals of the kinds in a namespace and of the whole cluster."""


def stored_needs(call: Call, world: World) -> tuple[Need, ...]:
    """Return what a stored VM refers to."""
    return _needs(call, world.vm or {})


def posted_needs(call: Call, _world: World) -> tuple[Need, ...]:
    """Return what a posted VM refers to."""
    return _needs(call, options(call))


def stored(call: Call, world: World) -> Decision:
    """Expand the VM of that name."""
    return _expand(call, world, world.the_vm(call), internal)


def posted(call: Call, world: World) -> Decision:
    """Expand the VM in the body."""
    vm = options(call, required=True)
    problem = _problem(vm)
    if problem:
        raise bad_request("Object is not a valid VirtualMachine", (StatusCause(message=problem),))
    namespace = text_at(vm, "metadata", "namespace")
    if namespace not in ("", call.namespace):
        raise bad_request(f"VM namespace must be empty or {call.namespace}")
    here = {**vm, "metadata": {**object_at(vm, "metadata"), "namespace": call.namespace}}
    return _expand(call, world, here, bad_request)


def _problem(vm: Json) -> str:
    if text(vm.get("kind")) not in ("", "VirtualMachine"):
        return f"kind is {vm.get('kind')!r}, not VirtualMachine"
    if type(object_at(vm, "spec").get("template")) is not dict:
        return "spec.template: Required value"
    try:
        msgspec.convert(vm, VirtualMachine, strict=False)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _expand(call: Call, world: World, vm: Json, refuse: Callable[[str], Refused]) -> Decision:
    result: Json = {"apiVersion": API, "kind": "VirtualMachine", **clone(vm)}
    spec, template = mapping(result.get("spec")), object_at(result, "spec", "template")
    size = _referred(call, world, vm, "instancetype", refuse)
    wishes = _referred(call, world, vm, "preference", refuse)
    if size is None and wishes is None:
        return entity(result)
    conflicts = instancetypes.apply(size, wishes, template)
    if conflicts:
        fields = ", ".join(f"spec.template.{path}" for path in conflicts)
        raise refuse(f"cannot expand instancetype to VM: {fields} conflicts with selected instance type")
    problem = fill_common(object_at(template, "spec"), "spec.template.spec", world.config, Filler())
    if problem:
        raise refuse(problem)
    for kind in _PLURALS:
        spec.pop(kind, None)
    return entity(result)


def _referred(call: Call, world: World, vm: Json, kind: str, refuse: Callable[[str], Refused]) -> Json | None:
    need = _need(call, vm, kind)
    if need is None:
        return None
    found = world.others.get(need)
    if found is None:
        plural, _, name = need
        raise refuse(f'{plural}.instancetype.kubevirt.io "{name}" not found')
    return object_at(found, "spec")


def _needs(call: Call, vm: Json) -> tuple[Need, ...]:
    found = (_need(call, vm, kind) for kind in _PLURALS)
    return tuple(need for need in found if need is not None)


def _need(call: Call, vm: Json, kind: str) -> Need | None:
    matcher = object_at(vm, "spec", kind)
    name = text_at(matcher, "name")
    if not name:
        return None
    named = text_at(matcher, "kind").lower().removesuffix("s")
    namespaced, clusterwide = _PLURALS[kind]
    if named == namespaced.removesuffix("s"):
        return (namespaced, call.namespace, name)
    return (clusterwide, "", name)

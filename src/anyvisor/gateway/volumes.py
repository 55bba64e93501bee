"""addvolume and removevolume: disks that come and go while the guest runs."""

from collections.abc import Iterable
from typing import Final

from anyvisor.admission import volume_requests
from anyvisor.admission.values import Obj, clone, items, mapping, text
from anyvisor.api.meta import Json, controller_of, object_at
from anyvisor.gateway import patches
from anyvisor.gateway.answers import VM, VMI, Decision, Write, accepted, bad_request, conflict
from anyvisor.gateway.call import VMS as VM_PLURAL
from anyvisor.gateway.call import Call, dry_run, object_option, options, text_option
from anyvisor.gateway.machine import NOT_RUNNING
from anyvisor.gateway.world import World, is_running
from anyvisor.kube.resources import VMIS, VMS

DECLARATIVE: Final = "DeclarativeHotplugVolumes"
IMPERATIVE: Final = "HotplugVolumes"

_SOURCES = ("dataVolume", "persistentVolumeClaim")
_REQUESTS = "/status/volumeRequests"


def may_hotplug(world: World) -> bool:
    """Whether disks may come and go at all."""
    return world.config.on(DECLARATIVE) or world.config.on(IMPERATIVE)


def add(call: Call, world: World) -> Decision:
    """Attach a claim or data volume as a disk."""
    _must_be_enabled(world, "Add")
    found = options(call, required=True)
    name, disk, source = text_option(found, "name"), object_option(found, "disk"), object_option(found, "volumeSource")
    if not name:
        raise bad_request("AddVolumeOptions requires name to be set")
    if disk is None:
        raise bad_request("AddVolumeOptions requires disk to not be nil")
    if source is None:
        raise bad_request("AddVolumeOptions requires VolumeSource to not be nil")
    wanted = {"name": name, "disk": {**disk, "name": name}, "volumeSource": _hotpluggable(source), **_dry(found)}
    return _apply(call, world, {"addVolumeOptions": wanted}, dry_run(found))


def remove(call: Call, world: World) -> Decision:
    """Detach a disk that was attached."""
    _must_be_enabled(world, "Remove")
    found = options(call, required=True)
    name = text_option(found, "name")
    if not name:
        raise bad_request("RemoveVolumeOptions requires name to be set")
    return _apply(call, world, {"removeVolumeOptions": {"name": name, **_dry(found)}}, dry_run(found))


def _dry(found: Json) -> Json:
    return {"dryRun": found["dryRun"]} if found.get("dryRun") else {}


def _must_be_enabled(world: World, verb: str) -> None:
    if not may_hotplug(world):
        raise bad_request(
            f"Unable to {verb} Volume because neither feature gate {DECLARATIVE} nor {IMPERATIVE} is enabled."
        )


def _is_declarative(world: World) -> bool:
    """Whether the spec of a VM says which volumes its guest has; the older way goes before where it is asked for."""
    return world.config.on(DECLARATIVE) and not world.config.on(IMPERATIVE)


def _hotpluggable(source: Json) -> Json:
    kind = next((each for each in _SOURCES if source.get(each) is not None), None)
    return source if kind is None else {**source, kind: {**mapping(source[kind]), "hotpluggable": True}}


def _apply(call: Call, world: World, request: Json, dry: bool) -> Decision:
    if call.resource == VM_PLURAL:
        vm = world.the_vm(call)
        spec = object_at(vm, "spec", "template", "spec")
        _check(VM, call, spec, request)
        if _is_declarative(world):
            return accepted(_patch_spec(call, "/spec/template", spec, request, dry))
        return accepted(_patch_requests(call, vm, request, dry))
    vmi = world.the_vmi(call)
    owner = controller_of(vmi)
    if _is_declarative(world) and owner is not None and owner.get("kind") == VMS.kind:
        raise bad_request(f"the VMI belongs to the VirtualMachine {owner.get('name')!r}; change the volumes there")
    if not is_running(vmi):
        raise conflict(VMI, call.name, NOT_RUNNING)
    spec = object_at(vmi, "spec")
    _check(VMI, call, spec, request)
    return accepted(_patch_spec(call, "", spec, request, dry))


def _check(kind: str, call: Call, spec: Json, request: Json) -> None:
    volumes = items(spec.get("volumes"))
    if "addVolumeOptions" in request:
        wanted = mapping(request["addVolumeOptions"])
        name, claim = text(wanted.get("name")), _claim(mapping(wanted.get("volumeSource")))
        if any(text(volume.get("name")) == name for volume in volumes):
            why = f"Unable to add volume [{name}] because volume with that name already exists"
            raise conflict(kind, call.name, why)
        if any(claim in _claims(volume) for volume in volumes):
            raise conflict(kind, call.name, f"Unable to add volume source [{claim}] because it already exists")
        return
    name = text(mapping(request["removeVolumeOptions"]).get("name"))
    volume = next((each for each in volumes if text(each.get("name")) == name or name in _claims(each)), None)
    if volume is None:
        raise conflict(kind, call.name, f"Unable to remove volume [{name}] because it does not exist")
    if not any(mapping(volume.get(each)).get("hotpluggable") for each in _SOURCES):
        raise conflict(kind, call.name, f"Unable to remove volume [{name}] because it is not hotpluggable")


def _claim(source: Obj) -> str:
    return next(iter(_claims(source)), "")


def _claims(volume: Obj) -> tuple[str, ...]:
    """Names of the claim or data volume behind a volume."""
    found = (
        text(mapping(volume.get("dataVolume")).get("name")),
        text(mapping(volume.get("persistentVolumeClaim")).get("claimName")),
    )
    return tuple(name for name in found if name)


def _patch_spec(call: Call, prefix: str, spec: Json, request: Json, dry: bool) -> Write:
    volumes, disks = f"{prefix}/spec/volumes", f"{prefix}/spec/domain/devices/disks"
    after = _applied(spec, request)
    tests, changes = _split(
        (
            patches.change(volumes, spec.get("volumes"), after["volumes"]),
            patches.change(disks, object_at(spec, "domain", "devices").get("disks"), _disks(after)),
        )
    )
    resource = VMS if prefix else VMIS
    return Write(resource, call.namespace, [*tests, *changes], call.name, dry_run=dry)


def _applied(spec: Json, request: Json) -> Json:
    after: Json = clone(spec)
    after.setdefault("domain", {}).setdefault("devices", {})
    volume_requests.apply(after, request)
    after.setdefault("volumes", [])
    return after


def _disks(spec: Json) -> list[Json]:
    return object_at(spec, "domain", "devices").get("disks") or []


def _split(changes: Iterable[list[Json]]) -> tuple[list[Json], list[Json]]:
    """Put all tests before all changes, so that the patch is refused as a whole or not at all."""
    pairs = list(changes)
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _patch_requests(call: Call, vm: Json, request: Json, dry: bool) -> Write:
    pending = items(object_at(vm, "status").get("volumeRequests"))
    name = _name(request)
    if any(_name(each) == name for each in pending):
        raise conflict(
            VM, call.name, f"a request for the volume [{name}] is waiting already; try again once it is done"
        )
    patch = patches.change(_REQUESTS, object_at(vm, "status").get("volumeRequests"), [*pending, request])
    return Write(VMS, call.namespace, patch, call.name, "status", dry)


def _name(request: Json) -> str:
    wanted = mapping(request.get("addVolumeOptions")) or mapping(request.get("removeVolumeOptions"))
    return text(wanted.get("name"))

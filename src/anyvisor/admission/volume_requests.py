"""Requests in a VM's status to attach and detach volumes: the VM as it would become must be a valid one."""

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.hotplug import check_disk
from anyvisor.admission.result import NOT_SUPPORTED, AdmissionRequest, Causes
from anyvisor.admission.rules import spec as spec_rules
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, clone, items, mapping, text
from anyvisor.admission.view import Spec

_FIELD = "Status.volumeRequests"
_PATH = "status.volumeRequests"
_AT = "spec.template.spec"
_SOURCES = ("persistentVolumeClaim", "dataVolume")


def check(vm: Obj, request: AdmissionRequest, config: ClusterConfig, out: Causes) -> None:
    """Each request by itself, then the template and the running VMI with all of them applied."""
    status = mapping(vm.get("status"))
    requests = items(status.get("volumeRequests"))
    if not requests:
        return
    template: Obj = clone(mapping(mapping(mapping(vm.get("spec")).get("template")).get("spec")))
    vmi = _running(vm, request) if status.get("ready") is True else None
    running: Obj | None = clone(mapping(vmi.get("spec"))) if vmi is not None else None
    present = [{text(v.get("name")): v for v in items(spec.get("volumes"))} for spec in (template, running or {})]
    seen: set[tuple[str, str]] = set()
    for index, wanted in enumerate(requests):
        _check_one(wanted, f"{_PATH}[{index}]", present, seen, out)
        if out:
            return
        apply(template, wanted)
        if running is not None:
            apply(running, wanted)
    spec_rules.check(Spec.of(template, _AT), config, out)
    if out or vmi is None or running is None:
        return
    spec_rules.check(Spec.of(running, _AT), config, out)
    if not out and _is_migrating(vmi, request.now):
        out.add(NOT_SUPPORTED, "spec", "volumes cannot be attached or detached while the VM migrates; wait for its end")


def _running(vm: Obj, request: AdmissionRequest) -> Obj | None:
    meta = mapping(vm.get("metadata"))
    namespace = text(meta.get("namespace")) or request.namespace
    vmi = request.related.get("VirtualMachineInstance", namespace, text(meta.get("name")) or request.name)
    if vmi is None or mapping(vmi.get("metadata")).get("deletionTimestamp") is not None:
        return None
    return vmi


def _check_one(wanted: Obj, path: str, present: list[dict[str, Obj]], seen: set[tuple[str, str]], out: Causes) -> None:
    add, remove = wanted.get("addVolumeOptions"), wanted.get("removeVolumeOptions")
    if (add is None) == (remove is None):
        out.invalid(_FIELD, f"{path} needs exactly one of addVolumeOptions and removeVolumeOptions", path)
        return
    verb, options = ("attach", mapping(add)) if add is not None else ("detach", mapping(remove))
    name = text(options.get("name"))
    if (verb, name) in seen:
        out.invalid(_FIELD, f"{path}: there is already a request to {verb} {name!r}; remove one", path)
        return
    seen.add((verb, name))
    if add is None:
        return
    disk = options.get("disk")
    check_disk(mapping(disk) if disk is not None else None, name, _FIELD, out)
    if out:
        return
    volume = _new_volume(options)
    for volumes, where in zip(present, ("the VM's template", "the running VMI"), strict=True):
        if name in volumes and not equal(volume, volumes[name]):
            out.invalid(_FIELD, f"{path}: {where} has another volume named {name!r}; use another name", path)
            return


def _new_volume(options: Obj) -> Obj:
    source = mapping(options.get("volumeSource"))
    volume: Obj = {"name": text(options.get("name"))}
    for kind in _SOURCES:
        if source.get(kind) is not None:
            volume[kind] = source[kind]
            break
    return volume


def apply(spec: Obj, wanted: Obj) -> None:
    """Change a VMI spec as a request wants it."""
    volumes, devices = items(spec.get("volumes")), mapping(mapping(spec.get("domain")).get("devices"))
    disks = items(devices.get("disks"))
    if wanted.get("addVolumeOptions") is not None:
        options = mapping(wanted["addVolumeOptions"])
        volume = _new_volume(options)
        if any(text(v.get("name")) == volume["name"] for v in volumes):
            return
        for kind in _SOURCES:
            if kind in volume:
                volume[kind] = {**mapping(volume[kind]), "hotpluggable": True}
        spec["volumes"] = [*volumes, volume]
        if options.get("disk") is not None:
            devices["disks"] = [*disks, {**mapping(options["disk"]), "name": volume["name"]}]
    elif wanted.get("removeVolumeOptions") is not None:
        name = text(mapping(wanted["removeVolumeOptions"]).get("name"))
        spec["volumes"] = [volume for volume in volumes if text(volume.get("name")) != name]
        devices["disks"] = [disk for disk in disks if text(disk.get("name")) != name]


def _is_migrating(vmi: Obj, now: str) -> bool:
    state = mapping(mapping(vmi.get("status")).get("migrationState"))
    start, end = text(state.get("startTimestamp")), text(state.get("endTimestamp"))
    # RFC 3339 times of one zone, as the API writes them, sort as text.
    return bool(start) and start <= now and not (end and end <= now)

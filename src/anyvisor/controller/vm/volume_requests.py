"""`status.volumeRequests`: disks that the addvolume and removevolume subresources ask for."""

from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.vm.world import template_spec


def apply_volume_requests(vm: Json) -> None:
    """Carry the requests into the template, so that the disks stay over a restart."""
    requests = list_at(vm, "status", "volumeRequests")
    if not requests:
        return
    spec = template_spec(vm)
    for request in requests:
        added = object_at(request, "addVolumeOptions")
        removed = text_at(request, "removeVolumeOptions", "name")
        if added:
            add_volume(spec, added)
        elif removed:
            remove_volume(spec, removed)


def add_volume(spec: Json, options: Json) -> None:
    """Add a volume and its disk, unless they are there."""
    wanted = options.get("name")
    if any(volume.get("name") == wanted for volume in list_at(spec, "volumes")):
        return
    source = duplicate(object_at(options, "volumeSource"))
    for kind in source.values():
        if isinstance(kind, dict):
            kind["hotpluggable"] = True
    spec["volumes"] = [*list_at(spec, "volumes"), {"name": wanted, **source}]
    disk = {**duplicate(object_at(options, "disk")), "name": wanted}
    devices = spec.setdefault("domain", {}).setdefault("devices", {})
    disks = [entry for entry in list_at(devices, "disks") if entry.get("name") != wanted]
    devices["disks"] = [*disks, disk]


def remove_volume(spec: Json, wanted: str) -> None:
    """Take a volume and its disk out."""
    spec["volumes"] = [volume for volume in list_at(spec, "volumes") if volume.get("name") != wanted]
    devices = spec.setdefault("domain", {}).setdefault("devices", {})
    devices["disks"] = [disk for disk in list_at(devices, "disks") if disk.get("name") != wanted]


def trim_volume_requests(vm: Json) -> None:
    """Drop the requests that the template fulfils."""
    requests = list_at(vm, "status", "volumeRequests")
    if not requests:
        return
    spec = template_spec(vm)
    volumes = {volume.get("name") for volume in list_at(spec, "volumes")}
    disks = {disk.get("name") for disk in list_at(spec, "domain", "devices", "disks")}
    vm["status"]["volumeRequests"] = [entry for entry in requests if not _fulfilled(entry, volumes, disks)]


def _fulfilled(request: Json, volumes: set[str | None], disks: set[str | None]) -> bool:
    added = object_at(request, "addVolumeOptions")
    if added:
        return added.get("name") in volumes and added.get("name") in disks
    wanted = text_at(request, "removeVolumeOptions", "name")
    return wanted not in volumes and wanted not in disks

"""Whether the template was changed in a way that a running guest can only see after a restart.

The spec that the instance was started from is compared with the present one, after all fields that can be
changed live were taken over. `planning.changes.classify` answers for a person, per field and by the driver's manifest;
here the API's clients are answered, by its own rules and for the whole. What both go by is `planning.changes`'.
"""

from collections.abc import Iterable

from anyvisor.api.meta import Json, condition_is, list_at, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.conditions import make, remove, update
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.semantic import equal
from anyvisor.controller.vm.world import VmPass, template_spec
from anyvisor.planning.changes import PLACEMENT, hotpluggable


def sync_restart_required(run: VmPass, started: Json | None) -> bool:
    """Set or clear the condition; returns whether a restart is required."""
    if started is None or run.vmi is None:
        return False
    wanted = run.effective
    now = template_spec(wanted)
    then = duplicate(template_spec({"spec": started}))
    if _volumes_live(then, wanted):
        then["volumes"] = list_at(now, "volumes")
    if _disks_live(then, now):
        _devices(then)["disks"] = list_at(now, "domain", "devices", "disks")
    if run.world.settings.live_update:
        _take_over_live_fields(then, now)
    if not _networks_need_restart(now, run.vmi):
        _devices(then)["interfaces"] = list_at(now, "domain", "devices", "interfaces")
        then["networks"] = list_at(now, "networks")
    _take_over_firmware(then, now, run.vmi)
    conditions = run.vm["status"].setdefault("conditions", [])
    if equal(then, now):
        remove(conditions, words.RESTART_REQUIRED)
        return False
    require_restart(run, "a field of spec.template.spec was changed that takes effect only after a restart")
    return True


def require_restart(run: VmPass, message: str) -> None:
    """Set the condition, with the sentence that says why."""
    conditions = run.vm["status"].setdefault("conditions", [])
    update(conditions, make(words.RESTART_REQUIRED, "True", "", message, run.world.now))


def by_name(entries: Iterable[Json]) -> dict[str, Json]:
    """List entries by their name."""
    return {str(entry.get("name", "")): entry for entry in entries}


def _devices(spec: Json) -> Json:
    return spec.setdefault("domain", {}).setdefault("devices", {})


def _take_over_live_fields(then: Json, now: Json) -> None:
    cpu = object_at(now, "domain", "cpu")
    if cpu and object_at(then, "domain", "cpu"):
        then["domain"]["cpu"]["sockets"] = cpu.get("sockets")
    guest = object_at(now, "domain", "memory").get("guest")
    if guest is not None:
        then.setdefault("domain", {}).setdefault("memory", {})["guest"] = guest
    for field in PLACEMENT:
        then[field] = now.get(field)


def _take_over_firmware(then: Json, now: Json, vmi: Json) -> None:
    """A uuid that was only written back from the instance to the template is no change."""
    present = text_at(now, "domain", "firmware", "uuid")
    if present and present == text_at(vmi, "spec", "domain", "firmware", "uuid"):
        then.setdefault("domain", {}).setdefault("firmware", {})["uuid"] = present


def _volumes_live(then: Json, vm: Json) -> bool:
    old = by_name(list_at(then, "volumes"))
    migrates = text_at(vm, "spec", "updateVolumesStrategy") == "Migration"
    for volume in list_at(template_spec(vm), "volumes"):
        before = old.pop(str(volume.get("name", "")), None)
        if hotpluggable(volume):
            continue
        if before is None:
            return False
        moves = migrates and ("persistentVolumeClaim" in volume or "dataVolume" in volume)
        if not moves and not equal(before, volume):
            return False
    return all(hotpluggable(volume) for volume in old.values())


def _disks_live(then: Json, now: Json) -> bool:
    old = by_name(list_at(then, "domain", "devices", "disks"))
    old_volumes, new_volumes = by_name(list_at(then, "volumes")), by_name(list_at(now, "volumes"))
    for disk in list_at(now, "domain", "devices", "disks"):
        name = str(disk.get("name", ""))
        before = old.pop(name, None)
        if hotpluggable(new_volumes.get(name, {})):
            continue
        if before is None or not equal(before, disk):
            return False
    for name, disk in old.items():
        if name in old_volumes and not hotpluggable(old_volumes[name]):
            return False
        if "cdrom" in disk:
            return False
    return True


def _networks_need_restart(now: Json, vmi: Json) -> bool:
    wanted = by_name(list_at(now, "domain", "devices", "interfaces"))
    for name, interface in by_name(list_at(vmi, "spec", "domain", "devices", "interfaces")).items():
        if name not in wanted or not equal({**wanted[name], "state": ""}, {**interface, "state": ""}):
            return True
    wanted_networks = by_name(list_at(now, "networks"))
    present = by_name(list_at(vmi, "spec", "networks"))
    if any("pod" in net for net in wanted_networks.values()) and not any("pod" in net for net in present.values()):
        return True
    migratable = condition_is(vmi, "LiveMigratable")
    for name, network in present.items():
        if name not in wanted_networks:
            return True
        if not _same_network(wanted_networks[name], network, ignore_target=migratable):
            return True
    return False


def _same_network(left: Json, right: Json, *, ignore_target: bool) -> bool:
    """A machine that can move may be moved to another network of the same kind without a restart."""
    if ignore_target and "multus" in left and "multus" in right:
        left = {**left, "multus": {**object_at(left, "multus"), "networkName": ""}}
        right = {**right, "multus": {**object_at(right, "multus"), "networkName": ""}}
    return equal(left, right)

"""Changes of the template that are carried to the running instance."""

from fractions import Fraction

from anyvisor.api.meta import Json, is_deleting, list_at, object_at, text_at
from anyvisor.api.quantity import Quantity, parse_quantity
from anyvisor.controller import words
from anyvisor.controller.conditions import has
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Change, Problem
from anyvisor.controller.semantic import equal
from anyvisor.controller.vm.printable import printable_status
from anyvisor.controller.vm.restart_required import by_name, require_restart
from anyvisor.controller.vm.world import VmPass, template_spec
from anyvisor.kube.resources import VMIS
from anyvisor.planning.changes import PLACEMENT, PLUGGED, hotpluggable


def apply_live_updates(run: VmPass) -> None:
    """Patch the instance with what can change while it runs; the rest becomes RestartRequired."""
    vmi = run.vmi
    if vmi is None or is_deleting(vmi) or not run.settled:
        return
    after = duplicate(vmi)
    _placement(run, after)
    _interfaces(run, after)
    _volumes(run, after)
    _sockets(run, after)
    _memory(run, after)
    if after["spec"] != vmi["spec"]:
        run.draft.writes.append(Change(VMIS, vmi, after))
        run.vmi = after


def _migrating(run: VmPass) -> bool:
    return printable_status(run) == "Migrating"


def _placement(run: VmPass, after: Json) -> None:
    spec = template_spec(run.effective)
    changed = [field for field in PLACEMENT if not equal(spec.get(field), after["spec"].get(field))]
    if not changed:
        return
    if _migrating(run):
        message = f"{', '.join(changed)} of a migrating instance cannot change; tried again when it has moved"
        run.draft.problem = Problem("AffinityChangeError", message)
        return
    for field in changed:
        if spec.get(field):
            after["spec"][field] = duplicate(spec[field])
        else:
            after["spec"].pop(field, None)


def _interfaces(run: VmPass, after: Json) -> None:
    """Interfaces that were added are plugged, those marked absent unplugged, link states followed."""
    spec = template_spec(run.effective)
    networks = by_name(list_at(spec, "networks"))
    devices = after["spec"].setdefault("domain", {}).setdefault("devices", {})
    present = by_name(list_at(devices, "interfaces"))
    for interface in list_at(spec, "domain", "devices", "interfaces"):
        name = str(interface.get("name", ""))
        absent = interface.get("state") == "absent"
        if name not in present:
            if not absent and any(kind in interface for kind in PLUGGED) and name in networks:
                devices["interfaces"] = [*list_at(devices, "interfaces"), duplicate(interface)]
                after["spec"]["networks"] = [*list_at(after["spec"], "networks"), networks[name]]
        elif present[name].get("state") != "absent" and not equal(present[name].get("state"), interface.get("state")):
            present[name]["state"] = interface.get("state", "")
    _drop_detached(after, devices)


def _drop_detached(after: Json, devices: Json) -> None:
    reported = by_name(list_at(after, "status", "interfaces"))
    gone = {
        entry.get("name")
        for entry in list_at(devices, "interfaces")
        if entry.get("state") == "absent" and entry.get("name") not in reported
    }
    if gone:
        devices["interfaces"] = [one for one in devices["interfaces"] if one.get("name") not in gone]
        networks = list_at(after["spec"], "networks")
        after["spec"]["networks"] = [one for one in networks if one.get("name") not in gone]


def _volumes(run: VmPass, after: Json) -> None:
    """Hot-pluggable volumes of the template come to and go from the running instance."""
    if text_at(after, "status", "phase") != words.RUNNING:
        return
    if text_at(run.vm, "spec", "updateVolumesStrategy") == "Migration":
        return
    spec = template_spec(run.effective)
    wanted = {name: one for name, one in by_name(list_at(spec, "volumes")).items() if hotpluggable(one)}
    present = by_name(list_at(after["spec"], "volumes"))
    disks = by_name(list_at(spec, "domain", "devices", "disks"))
    gone = {name for name, one in present.items() if hotpluggable(one) and name not in wanted}
    new = [name for name in wanted if name not in present]
    if not gone and not new:
        return
    kept = [one for one in list_at(after["spec"], "volumes") if one.get("name") not in gone]
    after["spec"]["volumes"] = [*kept, *(duplicate(wanted[name]) for name in new)]
    devices = after["spec"].setdefault("domain", {}).setdefault("devices", {})
    kept_disks = [one for one in list_at(devices, "disks") if one.get("name") not in {*gone, *new}]
    devices["disks"] = [*kept_disks, *(duplicate(disks[name]) for name in new if name in disks)]


def _sockets(run: VmPass, after: Json) -> None:
    wanted = object_at(template_spec(run.effective), "domain", "cpu")
    present = object_at(after, "spec", "domain", "cpu")
    sockets, running = wanted.get("sockets") or 0, present.get("sockets") or 0
    if not wanted or not present or not run.world.settings.live_update:
        return
    if has(list_at(after, "status", "conditions"), words.VCPU_CHANGE, "False"):
        require_restart(run, "cpu.sockets could not be changed while the guest runs; restart to apply it")
        return
    if sockets == running:
        return
    if has(list_at(after, "status", "conditions"), words.VCPU_CHANGE, "True"):
        run.draft.problem = Problem("HotPlugCPUError", "another change of CPU sockets is still in progress")
    elif _migrating(run):
        run.draft.problem = Problem("HotPlugCPUError", "the instance migrates; CPU sockets change afterwards")
    elif sockets > (present.get("maxSockets") or 0):
        require_restart(run, f"cpu.sockets {sockets} is above the maximum that the instance started with")
    elif sockets < running:
        require_restart(run, "fewer cpu.sockets take effect only after a restart")
    elif text_at(run.vm, "spec", "template", "spec", "architecture") == "arm64":
        require_restart(run, "arm64 guests get more cpu.sockets only after a restart")
    else:
        per_socket = (wanted.get("cores") or 1) * (wanted.get("threads") or 1)
        added = (sockets - running) * per_socket
        present["sockets"] = sockets
        share = Quantity.of(added) * _inverse(run.world.settings.cpu_allocation_ratio)
        _add_to_resources(after, "cpu", share)


def _inverse(ratio: int) -> Fraction:
    return Fraction(1, ratio)


def _memory(run: VmPass, after: Json) -> None:
    wanted = object_at(template_spec(run.effective), "domain", "memory").get("guest")
    present = object_at(after, "spec", "domain", "memory")
    current = object_at(after, "status", "memory")
    if not wanted or not present.get("guest") or not current.get("guestCurrent"):
        return
    if not run.world.settings.live_update:
        return
    conditions = list_at(after, "status", "conditions")
    if has(conditions, words.MEMORY_CHANGE, "False"):
        require_restart(run, "memory.guest could not be changed while the guest runs; restart to apply it")
        return
    size, running = parse_quantity(wanted), parse_quantity(present["guest"])
    if size == running:
        return
    reason = _memory_needs_restart(after, size)
    if reason:
        require_restart(run, reason)
    elif has(conditions, words.MEMORY_CHANGE, "True"):
        run.draft.problem = Problem("HotPlugMemoryError", "another change of memory is still in progress")
    elif _migrating(run):
        run.draft.problem = Problem("HotPlugMemoryError", "the instance migrates; memory changes afterwards")
    else:
        present["guest"] = wanted
        _add_to_resources(after, "memory", size - parse_quantity(current["guestCurrent"]))


def _memory_needs_restart(vmi: Json, size: Quantity) -> str:
    memory = object_at(vmi, "spec", "domain", "memory")
    here = bool(object_at(vmi, "status", "hypervisor"))  # the node's driver changes it, without a move
    if not here and not has(list_at(vmi, "status", "conditions"), "LiveMigratable", "True"):
        return "memory.guest changes without a restart only on an instance that can migrate"
    if not memory.get("maxGuest"):
        return "the instance was started without memory.maxGuest, so memory.guest needs a restart"
    at_boot = object_at(vmi, "status", "memory").get("guestAtBoot")
    if at_boot and size < parse_quantity(at_boot):
        return "memory.guest below what the guest started with takes effect only after a restart"
    if size > parse_quantity(memory["maxGuest"]):
        return "memory.guest above memory.maxGuest of the instance takes effect only after a restart"
    return ""


def _add_to_resources(vmi: Json, name: str, added: Quantity) -> None:
    resources = object_at(vmi, "spec", "domain", "resources")
    for kind in ("requests", "limits"):
        amounts = object_at(resources, kind)
        if amounts.get(name):
            amounts[name] = str(parse_quantity(amounts[name]) + added)

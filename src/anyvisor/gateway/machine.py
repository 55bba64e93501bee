"""Calls on a run: pause, reset and their like, and what the guest's own agent tells."""

from typing import Any, Final

from anyvisor.admission.values import mapping
from anyvisor.api.meta import Json, condition_is, list_at, object_at, text_at, uid
from anyvisor.gateway import patches
from anyvisor.gateway.answers import (
    VM,
    VMI,
    AgentCall,
    Decision,
    Refused,
    Write,
    bad_request,
    conflict,
    forbidden,
    internal,
    message_of,
    text,
)
from anyvisor.gateway.call import VMS, Call, dry_run, options, text_option
from anyvisor.gateway.world import Need, World, is_paused, is_running, phase
from anyvisor.kube.resources import VMIS

NOT_RUNNING: Final = "VMI is not running"
DRAIN_TAINT: Final = "kubevirt.io/drain"
"""Key of the taint that asks for evacuation, where the configuration names no other."""


def pause(call: Call, world: World) -> Decision:
    """Stop the guest's CPUs."""
    options(call)
    vmi = world.the_vmi(call)
    _must_run(call, vmi)
    probe = object_at(vmi, "spec").get("livenessProbe")
    if probe is not None and "guestAgentPing" not in probe:
        why = "a paused guest would fail its livenessProbe and be restarted; remove the probe to pause it"
        raise forbidden(VMI, call.name, why)
    if is_paused(vmi):
        raise conflict(VMI, call.name, "VMI is already paused")
    return _ask(call, world)


def unpause(call: Call, world: World) -> Decision:
    """Let the guest's CPUs run on."""
    if world.vm is not None and object_at(world.vm, "status").get("snapshotInProgress") is not None:
        raise conflict(VM, call.name, "a snapshot of the paused guest is in progress; wait for its end")
    options(call)
    vmi = world.the_vmi(call)
    _must_run(call, vmi)
    if not is_paused(vmi):
        raise conflict(VMI, call.name, "VMI is not paused")
    return _ask(call, world)


def reset(call: Call, world: World) -> Decision:
    """Press the reset button."""
    world.the_vmi(call)
    return _ask(call, world)


def softreboot(call: Call, world: World) -> Decision:
    """Ask the guest to reboot, by its agent or the power button."""
    vmi = world.the_vmi(call)
    _must_run(call, vmi)
    if is_paused(vmi):
        raise conflict(VMI, call.name, "VMI is paused")
    acpi = object_at(vmi, "spec", "domain", "features", "acpi")
    if acpi.get("enabled") is False and not condition_is(vmi, "AgentConnected"):
        raise conflict(VMI, call.name, "VMI neither have the agent connected nor the ACPI feature enabled")
    return _ask(call, world)


def freeze(call: Call, world: World) -> Decision:
    """Have the guest's agent freeze or thaw the file systems."""
    _must_run(call, world.the_vmi(call))
    return _ask(call, world)


def guest_info(call: Call, world: World) -> Decision:
    """Read what the guest's agent tells; every refusal is a plain 500, as clients know it."""
    try:
        vmi = world.the_vmi(call)
        if not is_running(vmi):
            raise conflict(VMI, call.name, NOT_RUNNING)
        if not condition_is(vmi, "AgentConnected"):
            raise conflict(VMI, call.name, "VMI does not have guest agent connected")
    except Refused as refused:
        raise Refused(text(500, message_of(refused.decision))) from refused
    if not world.agent:
        raise Refused(text(500, f"No virt-handler on node {text_at(vmi, 'status', 'nodeName')} found"))
    return Decision(200, agent=AgentCall("GET", call.verb))


def evacuation_needs(call: Call, world: World) -> tuple[Need, ...]:
    """Return the node whose taints decide on a cancelled evacuation."""
    node = _evacuated_node(world.vmi or {})
    return (("nodes", "", node),) if node else ()


def cancel_evacuation(call: Call, world: World) -> Decision:
    """Take back that the VMI shall leave its node."""
    if call.resource == VMS and not object_at(world.the_vm(call), "status").get("created"):
        raise conflict(VM, call.name, "VMI is not started")
    vmi = world.the_vmi(call)
    if call.resource == VMS and not _belongs(vmi, world.the_vm(call)):
        raise internal(f"the VMI {call.name!r} belongs to something else than the VM of its name")
    key = text_at(world.config.configuration, "migrations", "nodeDrainTaintKey") or DRAIN_TAINT
    name = _evacuated_node(vmi)
    node = world.others.get(("nodes", "", name))
    if name and node is None:
        raise internal(f'nodes "{name}" not found')
    if any(_is_drain(taint, key) for taint in list_at(node or {}, "spec", "taints")):
        raise bad_request(f'Node "{name}" has the taint {key}:NoSchedule; take it away to cancel the evacuation')
    present = text_at(vmi, "status", "evacuationNodeName")
    if not present:
        return Decision(200)
    path, found = "/status/evacuationNodeName", options(call)
    wanted = text_option(found, "evacuationNodeName") or present
    patch = [patches.test(path, wanted), patches.remove(path)]
    return Decision(200, writes=(Write(VMIS, call.namespace, patch, call.name, dry_run=dry_run(found)),))


def _belongs(vmi: Json, vm: Json) -> bool:
    return any(owner.get("uid") == uid(vm) for owner in list_at(vmi, "metadata", "ownerReferences"))


def _evacuated_node(vmi: Json) -> str:
    return text_at(vmi, "status", "evacuationNodeName") or text_at(vmi, "status", "nodeName")


def _is_drain(taint: Any, key: str) -> bool:
    found = mapping(taint)
    return (found.get("key"), found.get("effect")) == (key, "NoSchedule")


def _must_run(call: Call, vmi: Json) -> None:
    if not is_running(vmi):
        raise conflict(VMI, call.name, NOT_RUNNING)


def reachable(call: Call, world: World) -> None:
    """Refuse (400) where no node agent can be asked about the run; clients take it as "not yet"."""
    vmi = world.the_vmi(call)
    if not (is_running(vmi) or phase(vmi) == "Scheduled"):
        raise bad_request(f"{NOT_RUNNING}: its phase is {text_at(vmi, 'status', 'phase') or 'not set'}")
    if not world.agent:
        node = text_at(vmi, "status", "nodeName")
        raise bad_request(f"node {node!r} has no agent that answers; look at its HypervisorNode")


def _ask(call: Call, world: World) -> Decision:
    found = options(call)
    reachable(call, world)
    if dry_run(found):
        return Decision(200)
    return Decision(200, agent=AgentCall("PUT", call.verb, found or None))

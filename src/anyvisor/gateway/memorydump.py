"""memorydump and removememorydump: the guest's memory into a claim."""

from fractions import Fraction
from typing import Any, Final

from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.api.quantity import Quantity, QuantityError, parse_quantity
from anyvisor.gateway import patches
from anyvisor.gateway.answers import (
    GROUP,
    VM,
    VMI,
    Decision,
    Refused,
    Write,
    accepted,
    bad_request,
    conflict,
    not_found,
)
from anyvisor.gateway.call import Call, options, text_option
from anyvisor.gateway.machine import NOT_RUNNING
from anyvisor.gateway.volumes import may_hotplug
from anyvisor.gateway.world import Need, World, is_running
from anyvisor.kube.resources import VMS

CLAIM: Final = "persistentvolumeclaim"
DUMP_OVERHEAD: Final = Quantity.of_bytes(100 * 1024 * 1024)
"""What a dump holds beside the memory."""
FILE_SYSTEM_OVERHEAD: Final = Fraction(55, 1000)
"""Share that a file system on the claim takes: the importer's default."""

_PATH = "/status/memoryDumpRequest"
_WRITABLE = ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")


def needs(call: Call, world: World) -> tuple[Need, ...]:
    """Return the claim that the dump goes to."""
    try:
        name = _claim_name(call, world)
    except Refused:  # of a body that says nothing; the decision is to tell so
        return ()
    return (("persistentvolumeclaims", call.namespace, name),) if name else ()


def request(call: Call, world: World) -> Decision:
    """Ask for a dump."""
    if not may_hotplug(world):
        raise bad_request("Unable to memory dump because HotplugVolumes feature gate is not enabled.")
    found = options(call)
    vm = world.the_vm(call)
    claim = _checked_claim(call, world, vm, text_option(found, "claimName"))
    present = _present(vm)
    state = text_at(present, "phase")
    if state == "Dissociating":
        why = f"can't dump memory for pvc [{claim}] a remove memory dump request is in progress"
        raise conflict(VM, call.name, why)
    if present and state not in ("Completed", "Failed"):
        raise conflict(VM, call.name, f"memory dump request for pvc [{claim}] already in progress")
    return accepted(_write(call, present, {"claimName": claim, "phase": "Associating"}))


def remove(call: Call, world: World) -> Decision:
    """Let the claim of the last dump go."""
    vm = world.the_vm(call)
    present = _present(vm)
    claim = text_at(present, "claimName")
    if not present:
        why = f"can't remove memory dump association for vm {call.name}, no association found"
        raise conflict(VM, call.name, why)
    if present.get("remove"):
        raise conflict(VM, call.name, f"memory dump remove request for pvc [{claim}] already exists")
    return accepted(_write(call, present, {"claimName": claim, "phase": "Dissociating", "remove": True}))


def _present(vm: Json) -> Json:
    return object_at(vm, "status", "memoryDumpRequest")


def _claim_name(call: Call, world: World) -> str:
    return text_option(options(call), "claimName") or text_at(_present(world.vm or {}), "claimName")


def _write(call: Call, present: Json, wanted: Json) -> Write:
    return Write(VMS, call.namespace, patches.change(_PATH, present or None, wanted), call.name, "status")


def _checked_claim(call: Call, world: World, vm: Json, named: str) -> str:
    held = text_at(_present(vm), "claimName")
    if not named and not _present(vm):
        raise bad_request("Memory dump requires claim name to be set")
    if named and held and named != held:
        why = (
            f"can't request memory dump for pvc [{named}] while pvc [{held}] is still associated as the memory dump pvc"
        )
        raise conflict(VM, call.name, why)
    vmi = world.the_vmi(call)
    if not is_running(vmi):
        raise conflict(VMI, call.name, NOT_RUNNING)
    name = named or held
    claim = world.others.get(("persistentvolumeclaims", call.namespace, name))
    if claim is None:
        raise not_found(CLAIM, name, GROUP)
    _check_claim(name, claim, vmi)
    return name


def _check_claim(name: str, claim: Json, vmi: Json) -> None:
    if text_at(claim, "spec", "volumeMode") == "Block":
        raise conflict(CLAIM, name, "pvc should be filesystem pvc")
    modes = list_at(claim, "spec", "accessModes")
    if modes and not any(mode in _WRITABLE for mode in modes):
        raise conflict(CLAIM, name, "pvc access mode can't be read only")
    size = _quantity(object_at(claim, "spec", "resources", "requests").get("storage"))
    needed = (_memory(vmi) + DUMP_OVERHEAD) * (1 + FILE_SYSTEM_OVERHEAD)
    if size < needed:
        whole = f"{-(-needed.value // 1024**2)}Mi"
        raise conflict(CLAIM, name, f"pvc size [{size}] should be bigger then [{whole}]")


def _memory(vmi: Json) -> Quantity:
    """The guest's memory: as much as was requested for it, and never less than it sees."""
    domain = object_at(vmi, "spec", "domain")
    requested = _quantity(object_at(domain, "resources", "requests").get("memory"))
    return max(requested, _quantity(object_at(domain, "memory").get("guest")))


def _quantity(value: Any) -> Quantity:
    try:
        return parse_quantity(value) if isinstance(value, str | int) else Quantity.of_bytes(0)
    except QuantityError:
        return Quantity.of_bytes(0)

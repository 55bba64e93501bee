"""Which call is decided by which function, and what each of them must have read beforehand; pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from anyvisor.gateway import connect, expand, graph, lifecycle, machine, memorydump, volumes
from anyvisor.gateway.answers import Decision, Refused, bad_request, failure
from anyvisor.gateway.call import VMIS, VMS, Call
from anyvisor.gateway.world import Listing, Need, World

Decide = Callable[[Call, World], Decision]


def _nothing(_call: Call, _world: World) -> tuple[()]:
    return ()


@dataclass(frozen=True, slots=True)
class Verb:
    """How one subresource is served."""

    method: str
    decide: Decide
    vm: bool = False
    """Whether the VM is read."""
    vmi: bool = True
    needs: Callable[[Call, World], tuple[Need, ...]] = _nothing
    """What else is read, once VM and VMI are known; may raise Refused."""
    listings: Callable[[Call, World], tuple[Listing, ...]] = _nothing
    listed: bool = True
    """Whether discovery shows it; the reference leaves some out."""


def _off(what: str, gate: str) -> Decide:
    def refuse(_call: Call, world: World) -> Decision:
        if world.config.on(gate):
            raise bad_request(f"{what} is not served here yet, though the feature gate {gate} is on")
        raise bad_request(f"{what} is off: it needs the feature gate {gate}")

    return refuse


_EVACUATE = Verb("PUT", machine.cancel_evacuation, vm=True, needs=machine.evacuation_needs)
_ATTESTATION = _off("attestation", "WorkloadEncryptionSEV")
_BACKUP = _off("incremental backup", "IncrementalBackup")

VERBS: Final[Mapping[tuple[str, str], Verb]] = {
    (VMS, "start"): Verb("PUT", lifecycle.start, vm=True),
    (VMS, "stop"): Verb("PUT", lifecycle.stop, vm=True),
    (VMS, "restart"): Verb("PUT", lifecycle.restart, vm=True),
    (VMS, "migrate"): Verb("PUT", lifecycle.migrate, vm=True),
    (VMS, "expand-spec"): Verb("GET", expand.stored, vm=True, vmi=False, needs=expand.stored_needs),
    ("", "expand-vm-spec"): Verb("PUT", expand.posted, vmi=False, needs=expand.posted_needs),
    (VMS, "evacuate/cancel"): _EVACUATE,
    (VMS, "objectgraph"): Verb("GET", graph.graph, vm=True, vmi=False, listings=graph.listings),
    (VMS, "portforward"): Verb("GET", connect.portforward, vm=True, listed=False),
    (VMS, "addvolume"): Verb("PUT", volumes.add, vm=True, vmi=False, listed=False),
    (VMS, "removevolume"): Verb("PUT", volumes.remove, vm=True, vmi=False, listed=False),
    (VMS, "memorydump"): Verb("PUT", memorydump.request, vm=True, needs=memorydump.needs, listed=False),
    (VMS, "removememorydump"): Verb("PUT", memorydump.remove, vm=True, vmi=False, listed=False),
    (VMIS, "pause"): Verb("PUT", machine.pause),
    (VMIS, "unpause"): Verb("PUT", machine.unpause, vm=True),
    (VMIS, "reset"): Verb("PUT", machine.reset),
    (VMIS, "softreboot"): Verb("PUT", machine.softreboot),
    (VMIS, "freeze"): Verb("PUT", machine.freeze),
    (VMIS, "unfreeze"): Verb("PUT", machine.freeze),
    (VMIS, "guestosinfo"): Verb("GET", machine.guest_info),
    (VMIS, "userlist"): Verb("GET", machine.guest_info),
    (VMIS, "filesystemlist"): Verb("GET", machine.guest_info),
    (VMIS, "addvolume"): Verb("PUT", volumes.add),
    (VMIS, "removevolume"): Verb("PUT", volumes.remove),
    (VMIS, "evacuate/cancel"): _EVACUATE,
    (VMIS, "objectgraph"): Verb("GET", graph.graph, listings=graph.listings),
    (VMIS, "console"): Verb("GET", connect.console),
    (VMIS, "vnc"): Verb("GET", connect.vnc),
    (VMIS, "vnc/screenshot"): Verb("GET", connect.screenshot),
    (VMIS, "usbredir"): Verb("GET", connect.usbredir, listed=False),
    (VMIS, "vsock"): Verb("GET", connect.vsock, listed=False),
    (VMIS, "portforward"): Verb("GET", connect.portforward),
    (VMIS, "backup"): Verb("PUT", _BACKUP, vmi=False),
    (VMIS, "redefine-checkpoint"): Verb("PUT", _BACKUP, vmi=False),
    (VMIS, "sev/fetchcertchain"): Verb("GET", _ATTESTATION, vmi=False),
    (VMIS, "sev/querylaunchmeasurement"): Verb("GET", _ATTESTATION, vmi=False),
    (VMIS, "sev/setupsession"): Verb("PUT", _ATTESTATION, vmi=False),
    (VMIS, "sev/injectlaunchsecret"): Verb("PUT", _ATTESTATION, vmi=False),
}


def verb_of(call: Call) -> Verb:
    """Return how the call is served; raises Refused (404, 405)."""
    verb = VERBS.get((call.resource, call.verb))
    if verb is None:
        raise Refused(failure(404, "NotFound", "the server could not find the requested resource"))
    if call.method != verb.method:
        why = f"{call.verb} is called with {verb.method}, not with {call.method}"
        raise Refused(failure(405, "MethodNotAllowed", why))
    return verb


def decide(call: Call, world: World) -> Decision:
    """Decide a call; a refusal is a decision too."""
    try:
        return verb_of(call).decide(call, world)
    except Refused as refused:
        return refused.decision

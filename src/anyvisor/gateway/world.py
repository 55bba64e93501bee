"""What a decision may look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anyvisor.admission.config import ClusterConfig
from anyvisor.api.meta import Json, condition_is, text_at
from anyvisor.gateway.answers import VM, VMI, not_found
from anyvisor.gateway.call import Call

Need = tuple[str, str, str]
"""(plural, namespace, name) of an object that a decision needs beside the VM and the VMI."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A collection in the call's namespace that a decision looks through."""

    plural: str
    labels: str
    """Its label selector, as text."""


@dataclass(frozen=True, slots=True)
class World:
    """The state of the cluster around one call, as the shell read it."""

    vm: Json | None = None
    vmi: Json | None = None
    agent: bool = False
    """Whether the node of the VMI has a node agent that can be asked."""
    config: ClusterConfig = field(default_factory=ClusterConfig.of)
    others: Mapping[Need, Json] = field(default_factory=dict[Need, Json])
    """The objects of `needs`, as far as they exist."""
    listed: Mapping[str, Sequence[Json]] = field(default_factory=dict[str, Sequence[Json]])
    """The objects of each listing, by plural."""

    def the_vm(self, call: Call) -> Json:
        """Return the VM; raises Refused (404)."""
        if self.vm is None:
            raise not_found(VM, call.name)
        return self.vm

    def the_vmi(self, call: Call) -> Json:
        """Return the VMI; raises Refused (404)."""
        if self.vmi is None:
            raise not_found(VMI, call.name)
        return self.vmi


def phase(vmi: Json) -> str:
    """Return the phase of a VMI; empty when it is not set."""
    return text_at(vmi, "status", "phase")


def is_running(vmi: Json) -> bool:
    return phase(vmi) == "Running"


def is_final(vmi: Json) -> bool:
    """Whether the run is over."""
    return phase(vmi) in ("Succeeded", "Failed")


def is_paused(vmi: Json) -> bool:
    return condition_is(vmi, "Paused")

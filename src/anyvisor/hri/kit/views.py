"""Where a machine stands, as a value: what a driver's pure tables turn the VMM's states and events into.

What ended a guest is often known only to the client that was connected. `Intent` is what that client has asked for, or
seen others ask for; a driver that must remember more subclasses it.
"""

from dataclasses import dataclass
from typing import Final

from anyvisor.hri.v1.types_pb2 import (
    END_REASON_UNSPECIFIED,
    PAUSE_REASON_UNSPECIFIED,
    PHASE_CRASHED,
    PHASE_LOST,
    PHASE_STOPPED,
    EndReason,
    PauseReason,
    Phase,
)

FINAL_PHASES: Final = frozenset({PHASE_STOPPED, PHASE_CRASHED, PHASE_LOST})
"""The guest is down for good: a machine is one run, and never runs again."""


@dataclass(frozen=True, slots=True)
class View:
    """The part of a machine's state that the VMM's states and events decide. `MachineContext.show` publishes it."""

    phase: Phase
    end_reason: EndReason = END_REASON_UNSPECIFIED
    pause_reason: PauseReason = PAUSE_REASON_UNSPECIFIED
    message: str = ""

    @property
    def final(self) -> bool:
        """Whether the guest is down for good."""
        return self.phase in FINAL_PHASES


@dataclass(slots=True)
class Intent:
    """What was asked of the guest; tells a shutdown on request from one of its own."""

    stop: bool = False
    reboot: bool = False
    force: bool = False

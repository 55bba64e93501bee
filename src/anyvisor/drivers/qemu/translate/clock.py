"""The guest's clock and its timers.

QEMU's clock starts in UTC or in the local time of its own process, so any other zone is the process's: `TZ`.
"""

import re
from typing import Final

from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.hri.v1.machine_spec_pb2 import Clock, Machine
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM, Accelerator

_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(/[A-Za-z0-9_+-]{1,31}){0,2}")
MAX_OFFSET_SECONDS: Final = 24 * 3600
"""Of the form in which POSIX writes a zone."""
_TRACKS: Final = {"": "host", "wall": "host", "guest": "vm"}


def add_clock(draft: Draft, machine: Machine, accelerator: Accelerator) -> list[str]:
    """The real-time clock and the timers; returns what the board is told of them."""
    clock, options = machine.clock, ["base=utc", "clock=host"]
    if zone := _zone(draft, clock):
        draft.env.append(f"TZ={zone}")
        options[0] = "base=localtime"
    board: list[str] = []
    for index, timer in enumerate(clock.timers):
        path = f"clock.timers[{index}]"
        match timer.name:
            case "rtc":
                _rtc(draft, timer, options, path)
            case "hpet":
                board += _hpet(draft, timer, path)
            case "pit":
                board += _pit(draft, timer, path, kvm=accelerator == ACCELERATOR_KVM)
            case "kvm" | "hyperv":
                _only_kvm(draft, timer, path, kvm=accelerator == ACCELERATOR_KVM)
            case other:
                draft.refuse("CAP_NO", path, f"there is no timer {other[:40]!r}", have="rtc, pit, hpet, kvm, hyperv")
    draft.option("rtc", ",".join(options))
    return board


def cpu_flags(machine: Machine, accelerator: Accelerator) -> list[str]:
    """Timers that are properties of the CPU."""
    if accelerator != ACCELERATOR_KVM:
        return []
    names = {"kvm": "kvmclock", "hyperv": "hv-time"}
    timers = [timer for timer in machine.clock.timers if timer.name in names]
    return [f"{names[timer.name]}={'on' if timer.present else 'off'}" for timer in timers]


def _zone(draft: Draft, clock: Clock) -> str:
    """A value of TZ; empty = UTC."""
    if clock.WhichOneof("base") == "timezone":
        if _ZONE.fullmatch(clock.timezone):
            return clock.timezone
        draft.refuse("VALUE_INVALID", "clock.timezone", "use a name such as Europe/Berlin", have=clock.timezone[:60])
    offset = clock.utc_offset_seconds
    if abs(offset) > MAX_OFFSET_SECONDS:
        draft.refuse("LIMIT_EXCEEDED", "clock.utc_offset_seconds", "use at most 24 hours", want=str(offset))
        return ""
    if not offset:
        return ""
    hours, rest = divmod(abs(offset), 3600)
    # POSIX counts westwards.
    return f"<GUEST>{'-' if offset > 0 else ''}{hours:02}:{rest // 60:02}:{rest % 60:02}"


def _rtc(draft: Draft, timer: Clock.Timer, options: list[str], path: str) -> None:
    if not timer.present:
        draft.note("IGNORED", f"{path}.present", "the board has a real-time clock always", want="off", severity="warn")
    if timer.track not in _TRACKS:
        draft.refuse(
            "VALUE_NOT_IN_SET", f"{path}.track", "use guest or wall", have="guest, wall", want=timer.track[:40]
        )
    options[1] = f"clock={_TRACKS.get(timer.track, 'host')}"
    match timer.tick_policy:
        case "catchup":
            options.append("driftfix=slew")
        case "" | "delay":
            pass
        case other:
            have, want = "delay, catchup", other[:40]
            draft.refuse("VALUE_NOT_IN_SET", f"{path}.tick_policy", "use delay or catchup", have=have, want=want)


def _hpet(draft: Draft, timer: Clock.Timer, path: str) -> list[str]:
    if timer.tick_policy not in ("", "delay"):
        text = f"this timer is always late and never catches up; {timer.tick_policy[:40]} is not done"
        draft.note("IGNORED", f"{path}.tick_policy", text, have="delay", want=timer.tick_policy[:40], severity="warn")
    return [f"hpet={'on' if timer.present else 'off'}"]


def _pit(draft: Draft, timer: Clock.Timer, path: str, *, kvm: bool) -> list[str]:
    policy = timer.tick_policy
    if policy not in ("", "delay", "discard"):
        have, want = "delay, discard", policy[:40]
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.tick_policy", "use delay or discard", have=have, want=want)
    elif policy and kvm:
        draft.option("global", f"kvm-pit.lost_tick_policy={policy}")
    elif policy == "discard":
        text = "under software emulation this timer's lost ticks are delayed, not discarded"
        draft.note("IGNORED", f"{path}.tick_policy", text, have="delay", want=policy, severity="warn")
    return [f"pit={'on' if timer.present else 'off'}"]


def _only_kvm(draft: Draft, timer: Clock.Timer, path: str, *, kvm: bool) -> None:
    if timer.present and not kvm:
        text = f"there is no {timer.name} clock under software emulation; the guest does without it"
        draft.note("IGNORED", path, text, want=timer.name, severity="warn")

"""Faults to order, from a command line or a test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

METHODS: Final = frozenset(
    {
        "prepare",
        "start",
        "stop",
        "reset",
        "pause",
        "resume",
        "destroy",
        "adopt",
        "inspect",
        "apply",
        "open",
        "probe",
        "stats",
        "info",
        "facts",
        "watch",
    }
)
LIES: Final = frozenset({"apply", "claims", "echo", "state", "info", "launch", "phase", "profile"})


class FaultError(ValueError):
    """The text orders no fault that exists."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What the fake driver does wrong. Empty: nothing."""

    slow: Mapping[str, float] = field(default_factory=dict[str, float])
    """method -> seconds before it acts."""
    flaky: Mapping[str, int] = field(default_factory=dict[str, int])
    """method -> every n-th call fails with UNAVAILABLE, the first included."""
    hang: frozenset[str] = frozenset()
    """methods that never answer."""
    crash: frozenset[str] = frozenset()
    """methods in which the process dies at once (exit code 70)."""
    lies: frozenset[str] = frozenset()
    """echo: confirms whatever is asked; state: reports RUNNING after a forced stop; info: another boot id each time;
    launch: a launch plan that breaks its form; claims: plans what its manifest does not claim; apply: calls a
    change done, and does nothing; profile: says that it serves what its manifest does not claim;
    phase: reports a guest that runs by a phase that no minor knows."""
    minor: tuple[int, int] | None = None
    """The oldest and the newest HRI minor that it says to speak."""
    leak: bool = False
    """Forgets to forget destroyed machines, and keeps descriptors."""
    gaps: int = 0
    """Every n-th event is lost, its number with it."""
    amnesia: bool = False
    """No memory of operation ids: a replay acts again."""
    stale: bool = False
    """Takes any generation."""
    skips: bool = False
    """Skips fields that it does not know, as careless servers do."""
    flood: int = 0
    """So many events of progress with each operation."""


def parse(text: str) -> Faults:
    """The faults of a text, parted by commas.

    `slow=start:2`, `flaky=prepare:3`, `hang=stop`, `crash=apply`, `lie=echo`, `minor=9`, `minor=1-4`, `gaps=5`,
    `flood=100`, `leak`, `amnesia`, `stale`, `skips`.
    """
    slow: dict[str, float] = {}
    flaky: dict[str, int] = {}
    sets: dict[str, set[str]] = {"hang": set(), "crash": set(), "lie": set()}
    numbers: dict[str, int] = {}
    minor: tuple[int, int] | None = None
    switches: set[str] = set()
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        what, _, amount = value.partition(":")
        try:
            if name == "slow":
                slow[_method(what)] = float(amount)
            elif name == "flaky":
                flaky[_method(what)] = int(amount)
            elif name in ("hang", "crash"):
                sets[name].add(_method(what))
            elif name == "lie" and what in LIES:
                sets["lie"].add(what)
            elif name == "minor":
                oldest, _, newest = value.partition("-")
                minor = (int(oldest), int(newest or oldest))
            elif name in ("gaps", "flood"):
                numbers[name] = int(value)
            elif name in ("leak", "amnesia", "stale", "skips") and not value:
                switches.add(name)
            else:
                raise FaultError(f"{part!r} orders no fault")
        except ValueError as error:
            raise FaultError(f"{part!r} orders no fault: {error}") from error
    return Faults(
        slow=slow,
        flaky=flaky,
        hang=frozenset(sets["hang"]),
        crash=frozenset(sets["crash"]),
        lies=frozenset(sets["lie"]),
        minor=minor,
        gaps=numbers.get("gaps", 0),
        flood=numbers.get("flood", 0),
        leak="leak" in switches,
        amnesia="amnesia" in switches,
        stale="stale" in switches,
        skips="skips" in switches,
    )


def _method(name: str) -> str:
    if name not in METHODS:
        raise FaultError(f"{name!r} is none of {', '.join(sorted(METHODS))}")
    return name

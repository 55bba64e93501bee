"""The reporting guest: what it must say on its console, and how that is read.

The contract of the guest (docs/hri, section 10) is lines on the first serial console. Once it takes commands, it says
a line with `ANYVISOR ready`. `report` answers with lines `REPORT kind name=value ...`, up to `REPORT end`; `write NAME
BYTES` with `REPORT written` or `REPORT failed`; `fill KIB` with `REPORT filled`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anyvisor.hri.conformance.running import Running
from anyvisor.hri.conformance.session import fail

READY: Final = r"^ANYVISOR ready"
READY_SECONDS: Final = 120.0
ANSWER_SECONDS: Final = 60.0
_PAIR: Final = re.compile(r"([a-z]+)=(\S*)")
_LINE: Final = re.compile(r"^REPORT ([a-z]+)(.*)$", re.MULTILINE)

Fields = Mapping[str, str]
NOTHING: Final[Fields] = {}


@dataclass(frozen=True, slots=True)
class GuestReport:
    """What a guest sees: records by kind, in the order in which it told them."""

    records: Mapping[str, tuple[Fields, ...]]

    def one(self, kind: str) -> Fields:
        """The first record of a kind, empty when there is none."""
        return next(iter(self.all(kind)), NOTHING)

    def all(self, kind: str) -> tuple[Fields, ...]:
        """All records of a kind."""
        return self.records.get(kind, ())

    def disk(self, serial: str) -> Fields:
        """The disk of a serial number, empty when there is none."""
        return next((disk for disk in self.all("disk") if disk.get("serial") == serial), NOTHING)

    def nic(self, mac: str) -> Fields:
        """The interface of an address, empty when there is none."""
        return next((nic for nic in self.all("nic") if nic.get("mac", "").lower() == mac.lower()), NOTHING)


def parse(text: str) -> GuestReport:
    """The records of a console's text."""
    records: dict[str, list[Fields]] = {}
    for line in _LINE.finditer(text.replace("\r", "")):
        records.setdefault(line[1], []).append(dict(_PAIR.findall(line[2])))
    return GuestReport({kind: tuple(found) for kind, found in records.items()})


async def is_ready(running: Running, since: int = 0) -> None:
    """Wait until the guest takes commands."""
    if await running.launcher.reads(READY, READY_SECONDS, since) is None:
        fail(
            f"the reporting guest was not ready in {READY_SECONDS:g} s; it said "
            f"{running.launcher.tail()!r}, the VMM: {running.launcher.errors()}"
        )


async def ask(running: Running) -> GuestReport:
    """What the guest sees now."""
    since = await running.launcher.tell("report")
    found = await running.launcher.reads(r"(?s)^REPORT begin.*^REPORT end", ANSWER_SECONDS, since)
    if found is None:
        fail(f"the guest did not report in {ANSWER_SECONDS:g} s; it said {running.launcher.tail()!r}")
    return parse(found[0])


async def order(running: Running, line: str, answer: str, seconds: float = ANSWER_SECONDS) -> str:
    """A command, and the word of its answer; empty when none came in time."""
    since = await running.launcher.tell(line)
    found = await running.launcher.reads(rf"^REPORT ({answer})", seconds, since)
    return found[1] if found else ""

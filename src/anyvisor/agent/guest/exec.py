"""Run a program in a guest by its agent."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anyvisor.agent.guest.client import GuestAgentClient
from anyvisor.agent.guest.facts import TEXT
from anyvisor.agent.guest.protocol import GuestAgentError
from anyvisor.api.meta import Json

FIRST_LOOK: Final = 0.05
LAST_LOOK: Final = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program in the guest ended, and the beginning of what it said."""

    code: int
    text: str


async def run_in_guest(guest: GuestAgentClient, command: Sequence[str]) -> Ended:
    """Run it to its end. The guest's agent tells nothing by itself, so it is asked, less and less often.

    Raises:
        GuestAgentError: it cannot be run, or nobody answers.
    """
    arguments = {"path": command[0], "arg": list(command[1:]), "capture-output": True}
    started = await guest.ask("guest-exec", arguments)
    pid = started.get("pid") if isinstance(started, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] -- of the guest
    if not isinstance(pid, int):
        raise GuestAgentError("the guest's agent does not say which process it started")
    wait = FIRST_LOOK
    while True:
        await asyncio.sleep(wait)
        status = await guest.ask("guest-exec-status", {"pid": pid})
        ended = _ended(status) if isinstance(status, dict) else None  # pyright: ignore[reportUnknownArgumentType] -- of the guest
        if ended is not None:
            return ended
        wait = min(wait * 2, LAST_LOOK)


def _ended(status: Json) -> Ended | None:
    if status.get("exited") is not True:
        return None
    code, signal = status.get("exitcode"), status.get("signal")
    if isinstance(code, int):
        return Ended(code, _text(status))
    return Ended(128 + signal if isinstance(signal, int) else -1, _text(status))


def _text(status: Json) -> str:
    for stream in ("err-data", "out-data"):
        data = status.get(stream)
        if isinstance(data, str) and data:
            try:
                return base64.b64decode(data[: TEXT * 2 // 4 * 4]).decode(errors="replace").strip()[:TEXT]
            except binascii.Error:
                return ""
    return ""

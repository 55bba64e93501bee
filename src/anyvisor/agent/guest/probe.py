"""Probes of a guest by its own agent: whether that lives, or what a command in the guest returns."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anyvisor.agent.guest.client import ASK_SECONDS, GuestAgentClient
from anyvisor.agent.guest.exec import run_in_guest
from anyvisor.agent.guest.protocol import GuestAgentError

PROBER: Final = "virt-probe"
"""The program that pods' templates name for it, with the words that are read here."""

LONGEST_SECONDS: Final = 120.0
_TIMEOUT: Final = "--timeoutSeconds"


@dataclass(frozen=True, slots=True)
class AgentCheck:
    """A question to the agent in the guest: whether it lives, or what a command there returns."""

    command: tuple[str, ...] = ()
    """Empty = only whether it lives."""


def read_words(words: Sequence[str]) -> AgentCheck | None:
    """What the words of the prober ask; None when they name no command."""
    if "--guestAgentPing" in words:
        return AgentCheck()
    if "--command" not in words[:-1]:
        return None
    at = words.index("--command")
    rest = words[at + 2 :]
    return AgentCheck((words[at + 1], *(rest[1:] if rest[:1] == ["--"] else rest)))


def _seconds(words: Sequence[str]) -> float:
    """How long the kubelet waits, as its words tell; after that, nobody does."""
    at = words.index(_TIMEOUT) + 1 if _TIMEOUT in words[:-1] else 0
    number = words[at] if at else ""
    return min(float(number), LONGEST_SECONDS) if number.isascii() and number.isdecimal() else ASK_SECONDS


async def carry_out(guest: GuestAgentClient, check: AgentCheck, seconds: float = ASK_SECONDS) -> str:
    """What is wrong with the guest, as a sentence; empty for nothing. Raises GuestAgentError when nobody answers."""
    if not check.command:
        await guest.ask("guest-ping", seconds=seconds)
        return ""
    ended = await run_in_guest(guest, check.command)
    return f"{check.command[0]} ended with {ended.code}: {ended.text}" if ended.code else ""


async def answer(guest: GuestAgentClient, words: Sequence[str]) -> str:
    """Carry out what the words ask; a sentence for what is wrong, empty for nothing."""
    check = read_words(words)
    if check is None:
        return f"{PROBER} is told no command"
    seconds = _seconds(words)
    try:
        async with asyncio.timeout(seconds):
            return await carry_out(guest, check, seconds)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except GuestAgentError as error:
        return str(error)

"""What is known of the guest by its agent, looked up again while that is connected; and who thaws a frozen guest.

The agent in the guest tells nothing by itself, so its addresses are asked for every so often.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from anyvisor.agent.guest import facts
from anyvisor.agent.guest.client import FREEZE_SECONDS, GuestAgentClient
from anyvisor.agent.guest.protocol import GuestAgentError, GuestAgentSilent
from anyvisor.api.meta import Json

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
FIRST_LOOKS: Final = (0.0, 2.0, 5.0)
"""Seconds before the first looks: addresses come soon after the agent."""
LOST_THAW_SECONDS: Final = 300.0
"""When a guest is thawed that an agent of this node froze before it was restarted: the API's default."""
THAW_RETRY_SECONDS: Final = 10.0
FROZEN: Final = "frozen"
QUESTIONS: Final = (
    *("guest-info", "guest-get-osinfo", "guest-get-host-name", "guest-get-timezone"),
    *("guest-get-users", "guest-get-fsinfo", "guest-fsfreeze-status"),
)


@dataclass(frozen=True, slots=True)
class GuestFacts:
    """What of the guest stands in the VMI's status."""

    operating_system: Json = field(default_factory=dict[str, Any])
    interfaces: dict[str, Json] = field(default_factory=dict[str, Json])
    freeze_status: str = ""


class Guest:
    """The guest of one machine, as its agent tells. `changed` is called when `facts` are others than before."""

    def __init__(self, client: GuestAgentClient, changed: Callable[[], None]) -> None:
        self.client = client
        self.facts: GuestFacts | None = None
        self._changed = changed
        self._looking: asyncio.Task[None] | None = None
        self._thawing: asyncio.Task[None] | None = None
        self._stays_frozen = False

    def follow(self, *, connected: bool) -> None:
        """Look while the guest's agent is connected."""
        if connected and self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        elif not connected and self._looking is not None:
            self._looking.cancel()
            self._looking = None
            self.facts = None

    def close(self) -> None:
        """The machine is gone, or another agent will look."""
        for task in (self._looking, self._thawing):
            if task is not None:
                task.cancel()
        self._looking = self._thawing = None

    async def information(self) -> Json:
        """`VirtualMachineInstanceGuestAgentInfo`; what the agent has no command for is left out."""
        answers: dict[str, Any] = {"guest-info": await self.client.ask("guest-info")}
        for question in QUESTIONS[1:]:
            try:
                answers[question] = await self.client.ask(question)
            except GuestAgentSilent:
                raise
            except GuestAgentError as error:
                log.debug("%s: %s", question, error)
        return facts.information(answers)

    async def users(self) -> Json:
        """`VirtualMachineInstanceGuestOSUserList`."""
        items = facts.users(await self.client.ask("guest-get-users"))
        return {"kind": "VirtualMachineInstanceGuestOSUserList", "apiVersion": facts.API_VERSION, "items": items}

    async def file_systems(self) -> Json:
        """`VirtualMachineInstanceFileSystemList`."""
        items = facts.file_systems(await self.client.ask("guest-get-fsinfo"))
        return {"kind": "VirtualMachineInstanceFileSystemList", "apiVersion": facts.API_VERSION, "items": items}

    async def freeze(self, thaw_after: float) -> None:
        """Freeze the file systems, until they are thawed or `thaw_after` seconds (0 = for good) have passed."""
        if await self.client.ask("guest-fsfreeze-status") != FROZEN:
            await self.client.ask("guest-fsfreeze-freeze", seconds=FREEZE_SECONDS)
        self._stays_frozen = thaw_after <= 0
        self._thaw_in(thaw_after)
        await self._refresh()

    async def thaw(self) -> None:
        """Let the guest write again."""
        self._thaw_in(0)
        await self._thaw()

    async def reboot(self) -> None:
        """Have the guest reboot itself."""
        await self.client.tell("guest-shutdown", {"mode": "reboot"}, 2.0)

    def _thaw_in(self, seconds: float) -> None:
        if self._thawing is not None and self._thawing is not asyncio.current_task():
            self._thawing.cancel()
        self._thawing = None
        if seconds > 0:
            self._thawing = asyncio.get_running_loop().create_task(self._thaw_later(seconds))

    async def _thaw_later(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        while True:
            try:
                await self._thaw()
                break
            except GuestAgentError as error:
                log.warning("a frozen guest is not thawed yet: %s", error)
            await asyncio.sleep(THAW_RETRY_SECONDS)
        self._thawing = None

    async def _thaw(self) -> None:
        await self.client.ask("guest-fsfreeze-thaw", seconds=FREEZE_SECONDS)
        self._stays_frozen = False
        await self._refresh()

    async def _look(self) -> None:
        for seconds in FIRST_LOOKS:
            await asyncio.sleep(seconds)
            await self._refresh()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._refresh()

    async def _refresh(self) -> None:
        """Ask; what is not answered now stays as it was known."""
        before = self.facts or GuestFacts()
        found = GuestFacts(
            facts.operating_system(await self._asked("guest-get-osinfo")) or before.operating_system,
            facts.interfaces(await self._asked("guest-network-get-interfaces")) or before.interfaces,
            str(await self._asked("guest-fsfreeze-status") or "")[: facts.TEXT],
        )
        if found.freeze_status == FROZEN and self._thawing is None and not self._stays_frozen:
            self._thaw_in(LOST_THAW_SECONDS)
        if found != self.facts:
            self.facts = found
            self._changed()

    async def _asked(self, question: str) -> Any:
        try:
            return await self.client.ask(question)
        except GuestAgentError as error:
            log.debug("%s: %s", question, error)
            return None

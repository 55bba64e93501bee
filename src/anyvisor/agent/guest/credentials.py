"""Keys and passwords of Secrets that the agent inside the guest is to set, kept as the Secrets are.

https://kubevirt.io/user-guide/user_workloads/accessing_virtual_machines/ has the API's meaning: a key's Secret holds
public keys, a password's Secret has users as keys and passwords as values.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from anyvisor.agent.guest.protocol import GuestAgentError
from anyvisor.agent.volumes.cloudinit import public_keys
from anyvisor.agent.volumes.payloads import Files, PayloadError, credential_path, credential_secret
from anyvisor.api.meta import Json, list_at, object_at

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0
"""How often the Secrets are looked at: a guest's agent may also have failed for a while."""
BY_AGENT: Final = "qemuGuestAgent"
"""The API's word for the agent inside a guest."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What each user of the guest is to have."""

    keys: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    passwords: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)


class Asks(Protocol):
    """What is used of the guest's agent."""

    async def ask(self, command: str, arguments: Json | None = None) -> Any:
        """What the command returns; raises GuestAgentError."""
        ...


Read = Callable[[], Awaitable[Wanted]]


def by_agent(vmi: Json) -> list[Json]:
    """The credentials that the guest's agent sets."""
    return [
        one
        for one in list_at(vmi, "spec", "accessCredentials")
        if any(BY_AGENT in object_at(one, kind, "propagationMethod") for kind in ("sshPublicKey", "userPassword"))
    ]


def paths(vmi: Json) -> set[str]:
    """Where the launcher pod has their Secrets."""
    return {credential_path(credential_secret(one)) for one in by_agent(vmi)}


def wanted(vmi: Json, carried: Mapping[str, Files]) -> Wanted:
    """What the guest is to have, by what the pod carries."""
    keys: dict[str, frozenset[str]] = {}
    passwords: dict[str, bytes] = {}
    for one in by_agent(vmi):
        files = carried[credential_path(credential_secret(one))]
        if "userPassword" in one:
            passwords |= {user: content.rstrip(b"\r\n") for user, content in files.items()}
            continue
        for user in list_at(one, "sshPublicKey", "propagationMethod", BY_AGENT, "users"):
            keys[str(user)] = keys.get(str(user), frozenset()) | frozenset(public_keys(files))
    return Wanted(keys, passwords)


async def apply(agent: Asks, new: Wanted, old: Wanted) -> None:
    """Bring the guest from `old`, which we set, to `new`; what others put there is let be. Raises GuestAgentError."""
    for user, keys in sorted(new.keys.items()):
        if added := sorted(keys - old.keys.get(user, frozenset())):
            await agent.ask("guest-ssh-add-authorized-keys", {"username": user, "keys": added})
    for user, keys in sorted(old.keys.items()):
        if removed := sorted(keys - new.keys.get(user, frozenset())):
            await agent.ask("guest-ssh-remove-authorized-keys", {"username": user, "keys": removed})
    for user, password in sorted(new.passwords.items()):
        if old.passwords.get(user) != password:
            encoded = base64.b64encode(password).decode()
            await agent.ask("guest-set-user-password", {"username": user, "password": encoded, "crypted": False})


class Credentials:
    """Those of one machine. `changed` is called when `outcome` is another than before."""

    def __init__(self, agent: Asks, changed: Callable[[], None]) -> None:
        self._agent = agent
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self.outcome: str | None = None
        """Why they are not set, empty when they are; None while nothing is known."""
        self._done = Wanted()

    def follow(self, read: Read | None) -> None:
        """Keep them set while the guest's agent is connected; None: it is not, or there are none."""
        if read is not None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep(read))
        elif read is None:
            self.close()

    def close(self) -> None:
        """Look no more; the guest keeps what it has."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _keep(self, read: Read) -> None:
        while True:
            try:
                new = await read()
                await apply(self._agent, new, self._done)
                self._done, outcome = new, ""
            except (GuestAgentError, PayloadError, OSError) as error:
                outcome = str(error)
                log.info("credentials of a guest are not set: %s", outcome)
            if outcome != self.outcome:
                self.outcome = outcome
                self._changed()
            await asyncio.sleep(LOOK_SECONDS)

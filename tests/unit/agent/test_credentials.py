"""Keys and passwords that the agent inside a guest sets."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from anyvisor.agent.guest import credentials
from anyvisor.agent.guest.credentials import Credentials, Wanted
from anyvisor.agent.guest.protocol import GuestAgentError


@dataclass
class Agent:
    """Notes what it is asked; refuses users that it does not know."""

    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    users: set[str] = field(default_factory=lambda: {"alice", "root"})

    async def ask(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        assert arguments is not None
        if arguments["username"] not in self.users:
            raise GuestAgentError(f"there is no user {arguments['username']}")
        self.asked.append((command, arguments))


def key(secret: str, **method: Any) -> dict[str, Any]:
    return {"sshPublicKey": {"source": {"secret": {"secretName": secret}}, "propagationMethod": method}}


def password(secret: str) -> dict[str, Any]:
    method: dict[str, Any] = {"qemuGuestAgent": {}}
    return {"userPassword": {"source": {"secret": {"secretName": secret}}, "propagationMethod": method}}


def vmi(*found: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"accessCredentials": list(found)}}


def test_what_reaches_the_guest_by_its_agent() -> None:
    obj = vmi(key("k", qemuGuestAgent={"users": ["alice", "root"]}), key("c", noCloud={}), password("p"))
    places = {"/run/volumes/k-access-cred", "/run/volumes/p-access-cred"}
    assert credentials.paths(obj) == places
    carried = {
        "/run/volumes/k-access-cred": {"one": b"ssh-rsa A\n", "two": b"ssh-rsa B\n# old\n"},
        "/run/volumes/p-access-cred": {"root": b"secret\n"},
    }
    found = credentials.wanted(obj, carried)
    assert found.keys == {"alice": {"ssh-rsa A", "ssh-rsa B"}, "root": {"ssh-rsa A", "ssh-rsa B"}}
    assert found.passwords == {"root": b"secret"}
    assert "secret" not in repr(found)


async def test_only_what_changed_is_asked_for_and_what_others_put_there_is_let_be() -> None:
    agent = Agent()
    old = Wanted({"alice": frozenset({"A", "B"})}, {"root": b"one"})
    new = Wanted({"alice": frozenset({"B", "C"})}, {"root": b"two"})
    await credentials.apply(agent, new, old)
    assert agent.asked == [
        ("guest-ssh-add-authorized-keys", {"username": "alice", "keys": ["C"]}),
        ("guest-ssh-remove-authorized-keys", {"username": "alice", "keys": ["A"]}),
        ("guest-set-user-password", {"username": "root", "password": "dHdv", "crypted": False}),
    ]
    agent.asked.clear()
    await credentials.apply(agent, new, new)
    assert agent.asked == []


async def test_the_outcome_is_told_when_it_changes() -> None:
    agent, changed = Agent(), asyncio.Event()
    own = Credentials(agent, changed.set)

    async def read() -> Wanted:
        return Wanted({"bob": frozenset({"A"})})

    own.follow(read)
    await changed.wait()
    assert own.outcome == "there is no user bob"
    own.follow(None)
    agent.users.add("bob")
    changed.clear()
    own.follow(read)
    await changed.wait()
    assert own.outcome == ""
    own.close()

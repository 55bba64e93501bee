"""The guest agent's protocol against scripted, hostile and silent peers."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.agent.guest import facts
from anyvisor.agent.guest.client import GuestAgentClient
from anyvisor.agent.guest.protocol import ANSWER_BYTES, Answers, GuestAgentError, GuestAgentSilent, synchronise
from anyvisor.agent.guest.watch import FROZEN, Guest

SYNC = b'\xff{"return": 7}\n'


def fed(*parts: bytes) -> list[Any]:
    answers = Answers(7)
    return [found for part in parts for found in answers.feed(part)]


def test_an_exchange_begins_with_the_delimiter() -> None:
    sent = synchronise(7)
    assert sent[:1] == b"\xff"
    assert json.loads(sent[1:]) == {"execute": "guest-sync-delimited", "arguments": {"id": 7}}
    assert sent.endswith(b"\n")


@pytest.mark.parametrize(
    "parts",
    [
        (SYNC, b'{"return": {"a": 1}}\n'),
        (
            b'{"return": {}}\n',
            b'{"error": {"class": "GenericError", "desc": "JSON parse error"}}\n',
            SYNC,
            b'{"return": {"a": 1}}\n',
        ),
        (b'\xff{"return": 6}\n' + SYNC + b'{"return": {"a": 1}}\n',),
        (b'{"return": {"half', SYNC, b'{"return": {"a": 1}}\n'),
        (b"\xff\xfe nonsense\n", SYNC, b'{"return": ', b'{"a": 1}}\n'),
    ],
)
def test_what_was_said_before_is_dropped(parts: tuple[bytes, ...]) -> None:
    assert fed(*parts) == [{"a": 1}]


@pytest.mark.parametrize(
    "line",
    [b"[1, 2]\n", b'"return"\n', b"{}\n", b'{"error": "no"}\n', b"[" * 100_000 + b"\n", b"\x00\n"],
)
def test_nonsense_is_an_error(line: bytes) -> None:
    with pytest.raises(GuestAgentError):
        fed(SYNC, line)


def test_a_refusal_is_told_in_the_guests_words_and_bounded() -> None:
    with pytest.raises(GuestAgentError, match="not allowed") as caught:
        fed(SYNC, json.dumps({"error": {"desc": "not allowed" * 1000}}).encode() + b"\n")
    assert len(str(caught.value)) < 400


def test_an_answer_without_end_is_not_kept() -> None:
    answers = Answers(7)
    answers.feed(SYNC)
    with pytest.raises(GuestAgentError, match="more than"):
        for _ in range(ANSWER_BYTES // 65536 + 2):
            answers.feed(b"x" * 65536)


def test_old_answers_without_end_are_not_skipped_for_ever() -> None:
    answers = Answers(7)
    with pytest.raises(GuestAgentError, match="without end"):
        for _ in range(1000):
            answers.feed(b"x" * 65535 + b"\n")


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_break_it(parts: list[bytes]) -> None:
    answers = Answers(7)
    try:
        for part in (*parts, b"\n", SYNC):
            answers.feed(part)
    except GuestAgentError:
        return
    assert answers.synchronised


class Agent:
    """An agent on a real socket: answers by command, says what it got."""

    def __init__(self, answers: dict[str, Any], *, silent: bool = False) -> None:
        self.answers, self.silent = answers, silent
        self.asked: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()

    async def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        task = asyncio.create_task(self.serve(theirs))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return ours

    async def serve(self, end: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        pending = b""
        with end:
            while data := await loop.sock_recv(end, 4096):
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    if (reply := self.reply(json.loads(line.lstrip(b"\xff")))) is not None:
                        await loop.sock_sendall(end, reply)

    def reply(self, command: dict[str, Any]) -> bytes | None:
        name = command["execute"]
        if self.silent:
            return None
        if name == "guest-sync-delimited":
            return b"\xff" + json.dumps({"return": command["arguments"]["id"]}).encode() + b"\n"
        self.asked.append(name)
        answer = self.answers.get(name)
        if callable(answer):
            answer = answer()
        if answer is None:
            return None if name == "guest-shutdown" else b'{"error": {"class": "CommandNotFound", "desc": "unknown"}}\n'
        return json.dumps({"return": answer}).encode() + b"\n"


async def test_exchanges_take_turns() -> None:
    agent = Agent({"guest-ping": {}, "guest-get-users": []})
    client = GuestAgentClient(agent.connect)
    found = await asyncio.gather(client.ask("guest-ping"), client.ask("guest-get-users"), client.ask("guest-ping"))
    assert found == [{}, [], {}]


async def test_a_guest_without_an_agent_is_silent_in_time() -> None:
    client = GuestAgentClient(Agent({}, silent=True).connect)
    with pytest.raises(GuestAgentSilent, match="did not answer guest-ping") as caught:
        await client.ask("guest-ping", seconds=0.05)
    assert not caught.value.asked
    with pytest.raises(GuestAgentSilent):
        await client.tell("guest-shutdown", seconds=0.05)


async def test_a_command_that_is_not_answered_on_success() -> None:
    agent = Agent({})
    await GuestAgentClient(agent.connect).tell("guest-shutdown", {"mode": "reboot"}, 0.05)
    assert agent.asked == ["guest-shutdown"]


async def eventually(look: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not look():
            await asyncio.sleep(0.005)


async def test_a_frozen_guest_is_thawed_after_its_time() -> None:
    state = {"now": "thawed"}

    def set_to(word: str) -> Callable[[], int]:
        def change() -> int:
            state["now"] = word
            return 1

        return change

    agent = Agent(
        {
            "guest-fsfreeze-status": lambda: state["now"],
            "guest-fsfreeze-freeze": set_to(FROZEN),
            "guest-fsfreeze-thaw": set_to("thawed"),
        }
    )
    changes: list[int] = []
    guest = Guest(GuestAgentClient(agent.connect), lambda: changes.append(1))
    await guest.freeze(0.05)
    assert guest.facts is not None
    assert guest.facts.freeze_status == FROZEN
    await eventually(lambda: guest.facts is not None and guest.facts.freeze_status == "thawed")
    await guest.freeze(600)
    await guest.thaw()
    assert state["now"] == "thawed"
    assert len(changes) == 4
    guest.close()


async def test_what_an_agent_has_no_command_for_is_left_out() -> None:
    agent = Agent({"guest-info": {"version": "7.2"}, "guest-get-host-name": {"host-name": "box"}})
    told = await Guest(GuestAgentClient(agent.connect), lambda: None).information()
    assert (told["guestAgentVersion"], told["hostname"]) == ("7.2", "box")
    assert "os" not in told
    assert len(agent.asked) == 7


async def test_facts_come_while_the_agent_is_connected() -> None:
    agent = Agent({"guest-get-osinfo": {"id": "debian", "kernel-release": "6.1"}, "guest-network-get-interfaces": []})
    seen = asyncio.Event()
    guest = Guest(GuestAgentClient(agent.connect), seen.set)
    guest.follow(connected=True)
    async with asyncio.timeout(10):
        await seen.wait()
    assert guest.facts is not None
    assert guest.facts.operating_system == {"id": "debian", "kernelRelease": "6.1"}
    guest.follow(connected=False)
    assert guest.facts is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "ip-addresses", "disk", "user"]), inner)
    ),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_whatever_a_guest_tells_is_translated(value: Any) -> None:
    for translate in (facts.users, facts.file_systems, facts.operating_system, facts.interfaces, facts.commands):
        json.dumps(translate(value))


def test_addresses_of_the_guest_do_not_hide_those_of_the_network() -> None:
    known = facts.interfaces(
        [
            {"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": [{"ip-address": "127.0.0.1"}]},
            {
                "name": "eth0",
                "hardware-address": "02:00:00:00:00:0A",
                "ip-addresses": [{"ip-address": "fe80::1"}, {"ip-address": "10.0.2.2"}],
            },
        ]
    )
    translated = {"mac": "02:00:00:00:00:0a", "ipAddress": "10.244.0.3", "ipAddresses": ["10.244.0.3"]}
    plain = {"mac": "02:00:00:00:00:0a", "infoSource": "domain"}
    other = {"mac": "02:00:00:00:00:0b"}
    merged = facts.with_guest([translated, plain, other], known)
    assert [each.get("ipAddress") for each in merged] == ["10.244.0.3", "10.0.2.2", None]
    assert [each.get("interfaceName") for each in merged] == ["eth0", "eth0", None]
    assert merged[1]["infoSource"] == "domain, guest-agent"

"""Probes: what a pod's template says, what answers in a row mean, and how they are carried out."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from anyvisor.agent.guest.client import GuestAgentClient
from anyvisor.agent.guest.probe import AgentCheck
from anyvisor.embedded.podrunner.prober import Listener, Prober
from anyvisor.embedded.podrunner.probes import (
    Check,
    Count,
    HttpCheck,
    NoCheck,
    Probe,
    Purpose,
    TcpCheck,
    of_pod,
)

Json = dict[str, Any]


def check(handler: Json, address: str = "10.64.0.2") -> Check:
    ports = [{"name": "http", "containerPort": 8080}]
    pod: Json = {"spec": {"containers": [{"name": "compute", "ports": ports, "readinessProbe": handler}]}}
    [found] = of_pod(pod, address)
    return found.check


def virt_probe(*words: str) -> Json:
    return {"exec": {"command": ["virt-probe", "--domainName", "a_b", "--timeoutSeconds", "1", *words]}}


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        ({"tcpSocket": {"port": 22}}, TcpCheck("10.64.0.2", 22)),
        ({"tcpSocket": {"port": "http"}}, TcpCheck("10.64.0.2", 8080)),
        ({"tcpSocket": {"port": "22", "host": "192.0.2.1"}}, TcpCheck("192.0.2.1", 22)),
        ({"httpGet": {"port": "http"}}, HttpCheck("10.64.0.2", 8080, "/", False, ())),
        (
            {"httpGet": {"port": 443, "scheme": "HTTPS", "path": "up", "httpHeaders": [{"name": "A", "value": "b"}]}},
            HttpCheck("10.64.0.2", 443, "/up", True, (("A", "b"),)),
        ),
        (virt_probe("--guestAgentPing"), AgentCheck()),
        (virt_probe("--command", "ls", "--", "-l", "/"), AgentCheck(("ls", "-l", "/"))),
        (virt_probe("--command", "true"), AgentCheck(("true",))),
        (virt_probe("--command"), NoCheck("virt-probe is told no command")),
        ({"exec": {"command": ["sh"]}}, NoCheck("sh cannot be run beside the guest")),
        ({"tcpSocket": {"port": "ssh"}}, NoCheck("the container has no port 'ssh'")),
    ],
)
def test_what_is_asked(handler: Json, expected: Check) -> None:
    assert check(handler) == expected


def test_without_an_address_the_network_cannot_be_asked() -> None:
    found = check({"tcpSocket": {"port": 22}}, address="")
    assert isinstance(found, NoCheck)
    assert "guestAgentPing" in found.why
    assert check(virt_probe("--guestAgentPing"), address="") == AgentCheck()


def probe(purpose: Purpose = Purpose.READINESS, what: Check | None = None, **more: Any) -> Probe:
    numbers: Json = {"delay": 0.0, "period": 0.01, "timeout": 5.0, "successes": 1, "failures": 3, **more}
    return Probe(purpose, "compute", what or NoCheck("no"), **numbers)


@pytest.mark.parametrize(
    ("start", "answers", "expected"),
    [
        (False, "+", "+"),
        (False, "-+", "-+"),
        (True, "--", "++"),
        (True, "---", "++-"),
        (True, "--+--", "+++++"),
        (True, "---+", "++-+"),
    ],
)
def test_answers_in_a_row(start: bool, answers: str, expected: str) -> None:
    count = Count(start)
    seen = ""
    for answer in answers:
        count.note(probe(), good=answer == "+")
        seen += "+" if count.holds else "-"
    assert seen == expected


class Watcher:
    """What the prober tells."""

    def __init__(self) -> None:
        self.changed: asyncio.Queue[str] = asyncio.Queue()
        self.failures: list[str] = []
        self.dead: asyncio.Queue[str] = asyncio.Queue()

    @property
    def listener(self) -> Listener:
        async def dead(pod_uid: str, _probe: Probe, why: str) -> None:
            self.dead.put_nowait(f"{pod_uid}: {why}")

        return Listener(self.changed.put_nowait, lambda _uid, _probe, why: self.failures.append(why), dead)


@pytest.fixture
async def server() -> AsyncGenerator[tuple[int, list[int]]]:
    """A port that answers HTTP with the status that stands in the list, and what it was asked."""
    answer = [200]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % answer[0])
        await writer.drain()
        writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield running.sockets[0].getsockname()[1], answer
    running.close()
    await running.wait_closed()


def no_guest(_pod_uid: str) -> GuestAgentClient | None:
    return None


async def test_a_page_makes_a_pod_ready_and_not_ready(server: tuple[int, list[int]]) -> None:
    port, answer = server
    watcher = Watcher()
    prober = Prober(no_guest, watcher.listener)
    prober.follow("p", [probe(what=HttpCheck("127.0.0.1", port, "/", False, ()))], running_seconds=0, ready=False)
    assert not prober.ready("p")
    assert await asyncio.wait_for(watcher.changed.get(), 10) == "p"
    assert prober.ready("p")
    answer[0] = 503
    await asyncio.wait_for(watcher.changed.get(), 10)
    assert not prober.ready("p")
    assert "statuscode: 503" in watcher.failures[-1]
    prober.close()
    assert prober.ready("another pod"), "a pod without probes is ready"


async def test_a_guest_that_does_not_answer_any_more_is_reported_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    watcher = Watcher()
    prober = Prober(no_guest, watcher.listener)
    dead = probe(Purpose.LIVENESS, TcpCheck("127.0.0.1", port), failures=2)
    prober.follow("p", [dead], running_seconds=0, ready=True)
    assert prober.ready("p")
    assert (await asyncio.wait_for(watcher.dead.get(), 10)).startswith("p: ")
    assert len(watcher.failures) == 2
    prober.close()
    assert watcher.dead.empty()


async def test_a_probe_waits_for_its_delay_less_what_has_passed() -> None:
    watcher = Watcher()
    prober = Prober(no_guest, watcher.listener)
    later = probe(delay=3600.0, failures=1)
    prober.follow("young", [later], running_seconds=0, ready=True)
    prober.follow("old", [later], running_seconds=3600, ready=True)
    assert await asyncio.wait_for(watcher.changed.get(), 10) == "old"
    assert prober.ready("young")
    prober.close()


class Agent:
    """The agent of a guest that runs one program."""

    def __init__(self, code: int) -> None:
        self.asked: list[str] = []
        self._code = code

    async def ask(self, command: str, arguments: Json | None = None, seconds: float = 5.0) -> Any:
        del seconds
        self.asked.append(command)
        match command:
            case "guest-exec":
                assert arguments == {"path": "test", "arg": ["-e", "/up"], "capture-output": True}
                return {"pid": 7}
            case "guest-exec-status":
                done = self.asked.count(command) > 1
                return {"exited": done, "exitcode": self._code, "err-data": "bm90IHVw"} if done else {"exited": False}
            case _:
                return {}


@pytest.mark.parametrize(("code", "ready"), [(0, True), (1, False)])
async def test_a_program_in_the_guest_answers(code: int, ready: bool) -> None:
    agent: Any = Agent(code)
    watcher = Watcher()
    prober = Prober(lambda _uid: agent, watcher.listener)
    asked = probe(what=AgentCheck(("test", "-e", "/up")), failures=1)
    prober.follow("p", [asked], running_seconds=0, ready=not ready)
    await asyncio.wait_for(watcher.changed.get(), 10)
    assert prober.ready("p") is ready
    if not ready:
        assert watcher.failures[0] == "test ended with 1: not up"
    prober.close()

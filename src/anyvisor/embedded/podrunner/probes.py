"""Probes of a pod's containers, as a kubelet runs them: what is asked, and what the answers in a row mean. Pure.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from anyvisor.agent.guest.probe import PROBER, AgentCheck, read_words
from anyvisor.api.meta import Json, list_at, object_at, text_at

DEFAULT_SECONDS: Final = 1
DEFAULT_PERIOD: Final = 10
DEFAULT_FAILURES: Final = 3


class Purpose(StrEnum):
    """What a probe is for."""

    READINESS = "readinessProbe"
    LIVENESS = "livenessProbe"

    @property
    def event_name(self) -> str:
        """As events begin."""
        return "Readiness" if self is Purpose.READINESS else "Liveness"


@dataclass(frozen=True, slots=True)
class TcpCheck:
    """A connection to a port."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class HttpCheck:
    """A GET request that is answered with success or a redirection."""

    host: str
    port: int
    path: str
    secure: bool
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NoCheck:
    """A probe that cannot be carried out here, and why."""

    why: str


Check = TcpCheck | HttpCheck | AgentCheck | NoCheck


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe of one container. Times in seconds."""

    purpose: Purpose
    container: str
    check: Check
    delay: float
    period: float
    timeout: float
    successes: int
    failures: int


@dataclass(slots=True)
class Count:
    """Answers in a row, and what they amount to."""

    holds: bool
    """What is believed: ready or not, alive or not."""
    run: int = 0
    """Answers in a row that say the opposite."""

    def note(self, probe: Probe, *, good: bool) -> bool:
        """Take in an answer; whether the belief changed."""
        if good == self.holds:
            self.run = 0
            return False
        self.run += 1
        if self.run < (probe.successes if good else probe.failures):
            return False
        self.holds, self.run = good, 0
        return True


def of_pod(pod: Json, address: str) -> list[Probe]:
    """The probes of a launcher pod that has this address."""
    return [
        _probe(purpose, container, object_at(container, purpose), address)
        for container in list_at(pod, "spec", "containers")
        for purpose in Purpose
        if object_at(container, purpose)
    ]


def _probe(purpose: Purpose, container: Json, stated: Json, address: str) -> Probe:
    return Probe(
        purpose=purpose,
        container=str(container.get("name") or ""),
        check=_check(container, stated, address),
        delay=float(stated.get("initialDelaySeconds") or 0),
        period=float(stated.get("periodSeconds") or DEFAULT_PERIOD),
        timeout=float(stated.get("timeoutSeconds") or DEFAULT_SECONDS),
        successes=int(stated.get("successThreshold") or 1),
        failures=int(stated.get("failureThreshold") or DEFAULT_FAILURES),
    )


def _check(container: Json, stated: Json, address: str) -> Check:
    command = [str(word) for word in list_at(stated, "exec", "command")]
    if command:
        return _agent_check(command)
    action = object_at(stated, "httpGet") or object_at(stated, "tcpSocket")
    host, port = text_at(action, "host") or address, _port(container, action.get("port"))
    if not port:
        return NoCheck(f"the container has no port {action.get('port')!r}")
    if not host:
        return NoCheck("the machine has no address of its own: run `anyvisor up` as root, or use guestAgentPing")
    if "httpGet" not in stated:
        return TcpCheck(host, port)
    headers = tuple((str(each.get("name")), str(each.get("value"))) for each in list_at(action, "httpHeaders"))
    path = text_at(action, "path") or "/"
    secure = text_at(action, "scheme").upper() == "HTTPS"
    return HttpCheck(host, port, path if path.startswith("/") else f"/{path}", secure, headers)


def _agent_check(command: Sequence[str]) -> Check:
    """What the prober's arguments ask for; nothing else can be run in a launcher."""
    if command[0] != PROBER:
        return NoCheck(f"{command[0]} cannot be run beside the guest")
    return read_words(command) or NoCheck(f"{PROBER} is told no command")


def _port(container: Json, wanted: object) -> int:
    if isinstance(wanted, int):
        return wanted
    if isinstance(wanted, str) and wanted.isascii() and wanted.isdecimal():
        return int(wanted)
    for port in list_at(container, "ports"):
        if wanted and port.get("name") == wanted:
            return int(port["containerPort"])
    return 0

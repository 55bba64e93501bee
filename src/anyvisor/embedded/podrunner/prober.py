"""Carries probes out: one task with one timer for each, as long as the pod's launcher runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from anyvisor.agent.guest.client import GuestAgentClient
from anyvisor.agent.guest.probe import AgentCheck, carry_out
from anyvisor.agent.guest.protocol import GuestAgentError
from anyvisor.embedded.podrunner.probes import Check, Count, HttpCheck, NoCheck, Probe, Purpose, TcpCheck
from anyvisor.kube.connector import Connector

log = logging.getLogger(__name__)

USER_AGENT: Final = "kube-probe/1.37"
_GOOD: Final = range(200, 400)

GuestAgents = Callable[[str], GuestAgentClient | None]
"""The agent in the guest of a pod, by the pod's uid."""


def no_guest(_pod_uid: str) -> GuestAgentClient | None:
    """No agent of any guest is known."""
    return None


class ProbeFailureError(Exception):
    """The guest is not as the probe wants it; the message says in what way."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told."""

    changed: Callable[[str], None]
    """A pod is ready, or not any more."""
    failed: Callable[[str, Probe, str], None]
    """A probe of a pod was answered badly."""
    dead: Callable[[str, Probe, str], Awaitable[None]]
    """A pod's guest is to be ended."""


@dataclass(slots=True)
class _Probed:
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    readiness: list[Count] = field(default_factory=list[Count])


class Prober:
    """All probes of one node."""

    def __init__(self, guests: GuestAgents, listener: Listener) -> None:
        self._guests = guests
        self._listener = listener
        self._pods: dict[str, _Probed] = {}

    def follow(self, pod_uid: str, probes: Sequence[Probe], *, running_seconds: float, ready: bool) -> None:
        """Begin, unless it was begun. `ready`: what was believed before a restart of ours."""
        if pod_uid in self._pods:
            return
        probed = self._pods[pod_uid] = _Probed()
        for probe in probes:
            count = Count(ready if probe.purpose is Purpose.READINESS else True)
            if probe.purpose is Purpose.READINESS:
                probed.readiness.append(count)
            work = self._probe(pod_uid, probe, count, max(probe.delay - running_seconds, 0.0))
            probed.tasks.append(asyncio.get_running_loop().create_task(work, name=f"{probe.purpose} of {pod_uid}"))

    def forget(self, pod_uid: str) -> None:
        """The launcher ended, or is to end."""
        probed = self._pods.pop(pod_uid, None)
        for task in probed.tasks if probed is not None else ():
            if task is not asyncio.current_task():
                task.cancel()

    def close(self) -> None:
        """End all."""
        for pod_uid in list(self._pods):
            self.forget(pod_uid)

    def ready(self, pod_uid: str) -> bool:
        """Whether all readiness probes hold; a pod without any is ready."""
        probed = self._pods.get(pod_uid)
        return probed is None or all(count.holds for count in probed.readiness)

    async def _probe(self, pod_uid: str, probe: Probe, count: Count, delay: float) -> None:
        await asyncio.sleep(delay)
        while pod_uid in self._pods:
            why = await self._answer(pod_uid, probe)
            if why:
                self._listener.failed(pod_uid, probe, why)
            if count.note(probe, good=not why):
                if probe.purpose is Purpose.LIVENESS:
                    await self._listener.dead(pod_uid, probe, why)
                    return
                self._listener.changed(pod_uid)
            await asyncio.sleep(probe.period)

    async def _answer(self, pod_uid: str, probe: Probe) -> str:
        """Empty for a good answer, else what was wrong."""
        try:
            async with asyncio.timeout(probe.timeout):
                await self._carry_out(pod_uid, probe.check, probe.timeout)
        except TimeoutError:
            return f"no answer within {probe.timeout:g} s"
        except (ProbeFailureError, GuestAgentError, aiohttp.ClientError, OSError) as error:
            return str(error) or type(error).__name__
        return ""

    async def _carry_out(self, pod_uid: str, check: Check, seconds: float) -> None:
        match check:
            case TcpCheck():
                _, writer = await asyncio.open_connection(check.host, check.port)
                writer.close()
            case HttpCheck():
                await _get(check)
            case AgentCheck():
                await self._ask_guest(pod_uid, check, seconds)
            case NoCheck():
                raise ProbeFailureError(check.why)

    async def _ask_guest(self, pod_uid: str, check: AgentCheck, seconds: float) -> None:
        guest = self._guests(pod_uid)
        if guest is None:
            raise ProbeFailureError("the machine does not run yet")
        wrong = await carry_out(guest, check, seconds)
        if wrong:
            raise ProbeFailureError(wrong)


async def _get(check: HttpCheck) -> None:
    scheme = "https" if check.secure else "http"
    host = f"[{check.host}]" if ":" in check.host else check.host
    headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Connection": "close", **dict(check.headers)}
    url = f"{scheme}://{host}:{check.port}{check.path}"
    # A probe asks whether the guest answers, not who it is: certificates are not checked, as a kubelet does not.
    connector = Connector(ssl=False, force_close=True)
    async with (
        aiohttp.ClientSession(connector=connector, auto_decompress=False) as session,
        session.get(url, headers=headers, allow_redirects=False) as answer,
    ):
        if answer.status not in _GOOD:
            raise ProbeFailureError(f"HTTP probe failed with statuscode: {answer.status}")

"""The fills that run: few at a time, each tried again after a failure, ended when nobody wants it any more."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from anyvisor.embedded.imports.fetch import FillError, Job, Report
from anyvisor.kube.backoff import Backoff, BackoffPolicy

log = logging.getLogger(__name__)

POLICY: Final = BackoffPolicy(base=5.0, cap=300.0)
CONCURRENT: Final = 2
TELL_SECONDS: Final = 2.0
"""Progress is written to objects at most that often."""

Key = tuple[str, str]
Fetch = Callable[[Job, Report], Awaitable[None]]


@dataclass(slots=True)
class Fill:
    """One fill, and how it stands."""

    job: Job
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    percent: int = 0
    failures: int = 0
    reason: str = ""
    message: str = ""
    """Why the last try failed."""
    task: asyncio.Task[None] | None = None
    told: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(POLICY))


class Fills:
    """By the claim's uid; `changed(namespace, name)` is called when there is news of a claim."""

    def __init__(self, fetch: Fetch, changed: Callable[[Key], None]) -> None:
        self._fetch, self._changed = fetch, changed
        self._fills: dict[str, Fill] = {}
        self._slots = asyncio.Semaphore(CONCURRENT)
        self._group = asyncio.TaskGroup()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Fills"]:
        """All fills end with the block; who needs them asks again."""
        async with self._group:
            try:
                yield self
            finally:
                for fill in self._fills.values():
                    if fill.task is not None:
                        fill.task.cancel()

    def get(self, uid: str) -> Fill | None:
        """The claim's fill."""
        return self._fills.get(uid)

    def ensure(self, job: Job) -> Fill:
        """The claim's fill, begun if there is none."""
        found = self._fills.get(job.uid)
        if found is None:
            found = self._fills[job.uid] = Fill(job)
            found.task = self._group.create_task(self._work(found), name=f"fill {job.namespace}/{job.claim}")
        return found

    async def keep_only(self, key: Key, uid: str) -> None:
        """End the fills of claims of this name but for that of `uid` (empty: all); they write no more then."""
        for fill in [each for each in self._fills.values() if (each.job.namespace, each.job.claim) == key]:
            if fill.job.uid == uid:
                continue
            del self._fills[fill.job.uid]
            if fill.task is not None:
                fill.task.cancel()
                await asyncio.wait([fill.task])

    def forget(self, uid: str) -> None:
        """The claim is bound, and needs nothing more."""
        self._fills.pop(uid, None)

    async def _work(self, fill: Fill) -> None:
        while True:
            if await self._try(fill):
                return
            await asyncio.sleep(fill.backoff.next())

    async def _try(self, fill: Fill) -> bool:
        """Whether it is over."""
        key, over = (fill.job.namespace, fill.job.claim), True
        async with self._slots:
            fill.state = "running"
            self._changed(key)
            try:
                await self._fetch(fill.job, lambda percent: self._report(fill, percent))
                fill.state, fill.percent, fill.reason, fill.message = "done", 100, "", ""
            except FillError as error:
                self._failed(fill, error)
                over = error.final
        self._changed(key)
        return over

    def _failed(self, fill: Fill, error: FillError) -> None:
        log.warning("claim %s/%s is not filled: %s", fill.job.namespace, fill.job.claim, error)
        fill.failures += 1
        fill.percent, fill.reason, fill.message = 0, error.reason, str(error)
        fill.state = "failed" if error.final else "waiting"

    def _report(self, fill: Fill, percent: int) -> None:
        """Moves forward only; told now and then."""
        if percent <= fill.percent or fill.state != "running":
            return
        fill.percent = percent
        now = asyncio.get_running_loop().time()
        if now - fill.told >= TELL_SECONDS:
            fill.told = now
            self._changed((fill.job.namespace, fill.job.claim))

"""Fair queueing: so many requests run at once, and users take turns at what becomes free.

One loop does all the work, so a request waits for what runs before it. Without turns, whoever sends a thousand
requests makes everybody else wait for all of them. Sans-I/O but for the loop's futures.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class FairQueue:
    """`seats` requests run at once, at most `share` of them of one user; more wait, each user in a line of its own.

    The share leaves seats for others while one user's requests are slow (webhooks, for example).
    """

    def __init__(self, seats: int, share: int) -> None:
        self._free = seats
        self._share = share
        self._running: dict[str, int] = {}
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Users with waiting requests, in the order of their turns."""

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(not turn.done() for line in self._lines.values() for turn in line)

    @asynccontextmanager
    async def seat(self, user: str) -> AsyncGenerator[None]:
        """Hold a seat, once it is this user's turn."""
        if user not in self._lines and self._may_run(user):
            self._take(user)
        else:
            await self._wait(user)
        try:
            yield
        finally:
            self._give_back(user)

    def _may_run(self, user: str) -> bool:
        return self._free > 0 and self._running.get(user, 0) < self._share

    def _take(self, user: str) -> None:
        self._free -= 1
        self._running[user] = self._running.get(user, 0) + 1

    async def _wait(self, user: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(user, deque())
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(user)
            else:
                self._leave(user, turn)
            raise

    def _leave(self, user: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(user)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._lines[user]

    def _give_back(self, user: str) -> None:
        self._free += 1
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        self._next()

    def _next(self) -> None:
        """Give what is free to the user whose turn it is, who then goes behind the others."""
        for user in list(self._lines):
            if not self._may_run(user):
                continue
            line = self._lines.pop(user)
            turn = _first_waiting(line)
            if line:
                self._lines[user] = line
            if turn is not None:
                self._take(user)
                turn.set_result(None)
                return


def _first_waiting(line: deque[asyncio.Future[None]]) -> asyncio.Future[None] | None:
    """Take the first turn that nobody gave up; those before it go."""
    while line:
        turn = line.popleft()
        if not turn.done():
            return turn
    return None

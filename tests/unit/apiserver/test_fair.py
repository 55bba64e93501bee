"""Turns of users at what runs at once."""

import asyncio
from collections.abc import Awaitable, Callable

from anyvisor.embedded.apiserver.fair import FairQueue


class Requests:
    """Requests that run until they are let go, and the order in which they began."""

    def __init__(self, queue: FairQueue) -> None:
        self._queue = queue
        self.begun: list[str] = []
        self._gates: list[asyncio.Event] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def send(self, user: str, count: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._run(user)) for _ in range(count)]
        await settle()

    async def _run(self, user: str) -> None:
        async with self._queue.seat(user):
            gate = asyncio.Event()
            self.begun.append(user)
            self._gates.append(gate)
            await gate.wait()

    async def finish_one(self) -> None:
        self._gates.pop(0).set()
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def with_requests(seats: int, share: int, story: Callable[[Requests], Awaitable[None]]) -> FairQueue:
    queue = FairQueue(seats, share)
    requests = Requests(queue)
    try:
        await story(requests)
    finally:
        for task in requests.tasks:
            task.cancel()
        await asyncio.gather(*requests.tasks, return_exceptions=True)
    return queue


async def test_users_take_turns_however_many_requests_one_of_them_has():
    async def story(requests: Requests) -> None:
        await requests.send("greedy", 100)
        await requests.send("a", 2)
        await requests.send("b", 1)
        for _ in range(6):
            await requests.finish_one()
        assert requests.begun == ["greedy", "greedy", "greedy", "a", "b", "greedy", "a", "greedy"]

    queue = await with_requests(2, 2, story)
    assert queue.waiting == 0


async def test_one_user_never_has_all_seats():
    async def story(requests: Requests) -> None:
        await requests.send("slow", 10)
        assert requests.begun == ["slow"] * 2
        await requests.send("other", 3)
        assert requests.begun == ["slow"] * 2 + ["other"] * 2

    await with_requests(4, 2, story)


async def test_who_gives_up_waiting_frees_its_place_and_a_turn_that_came_too_late_goes_on():
    async def story(requests: Requests) -> None:
        await requests.send("a", 1)
        await requests.send("b", 2)
        await requests.send("c", 1)
        requests.tasks[1].cancel()
        await settle()
        await requests.finish_one()
        assert requests.begun == ["a", "b"]
        requests._gates[0].set()
        requests.tasks[3].cancel()  # c's turn comes in the same moment
        await settle()
        await requests.send("d", 1)
        assert requests.begun == ["a", "b", "d"]

    await with_requests(1, 1, story)

"""The work queue."""

import asyncio

import pytest

from anyvisor.kube import errors
from anyvisor.kube.backoff import BackoffPolicy
from anyvisor.kube.queue import WorkQueue

FAST = BackoffPolicy(base=0.001, cap=0.01)


async def test_a_key_waits_once() -> None:
    queue = WorkQueue[str]()
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == ["a", "b"]


async def test_a_key_that_is_worked_on_comes_again_after_it() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    assert len(queue) == 0
    queue.done(key)
    assert await queue.get() == "a"


async def test_the_soonest_wish_counts() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 3600)
    queue.add_after("a", 0.001)
    queue.add_after("a", 7200)
    async with asyncio.timeout(5):
        assert await queue.get() == "a"
    queue.done("a")
    queue.add_after("b", 3600)
    queue.add("b")
    assert await queue.get() == "b"
    queue.close()


async def test_one_worker_at_a_time_has_a_key_and_all_keys_are_done() -> None:
    queue, active, done = WorkQueue[int](FAST), set[int](), list[int]()
    finished = asyncio.Event()

    async def reconcile(key: int) -> None:
        assert key not in active
        active.add(key)
        await asyncio.sleep(0)
        active.discard(key)
        done.append(key)
        if len(done) == 20:
            finished.set()

    for key in range(20):
        queue.add(key)
    worker = asyncio.create_task(queue.run(reconcile, workers=4))
    await asyncio.wait_for(finished.wait(), 5)
    worker.cancel()
    assert sorted(done) == list(range(20))


@pytest.mark.parametrize("error", [errors.Conflict(409, "Conflict", "x"), errors.Unreachable("x"), KeyError("bug")])
async def test_a_failure_is_tried_again_and_then_forgotten(error: Exception) -> None:
    queue, tries = WorkQueue[str](FAST), list[str]()
    healthy = asyncio.Event()

    async def reconcile(key: str) -> None:
        tries.append(key)
        if len(tries) < 4:
            raise error
        healthy.set()

    queue.add("a")
    worker = asyncio.create_task(queue.run(reconcile))
    await asyncio.wait_for(healthy.wait(), 5)
    worker.cancel()
    assert queue.retry("a") < 0.002
    queue.close()


async def test_a_reconciler_may_ask_to_come_again() -> None:
    queue, tries = WorkQueue[str](FAST), list[str]()
    again = asyncio.Event()

    async def reconcile(key: str) -> float | None:
        tries.append(key)
        if len(tries) == 2:
            again.set()
            return None
        return 0.001

    queue.add("a")
    worker = asyncio.create_task(queue.run(reconcile))
    await asyncio.wait_for(again.wait(), 5)
    worker.cancel()


async def test_a_cancelled_waiter_does_not_swallow_a_key() -> None:
    queue = WorkQueue[str]()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 5) == "a"


@pytest.mark.parametrize(
    ("failures", "chance", "delay"), [(1, 0.5, 1), (2, 0.5, 2), (4, 0.5, 8), (9, 0.5, 10), (1000, 0.5, 10), (1, 0, 0.8)]
)
def test_delays(failures: int, chance: float, delay: float) -> None:
    assert BackoffPolicy(base=1, cap=10).delay(failures, chance) == pytest.approx(delay)


async def test_the_heaviest_key_comes_first_and_equals_in_the_order_of_their_coming() -> None:
    asked: list[str] = []

    def weight(key: str) -> int:
        asked.append(key)
        return int(key[0])

    queue = WorkQueue[str](weight=weight)
    keys = ["1a", "3a", "1b", "2a", "3b"]
    for key in keys:
        queue.add(key)
    assert [await queue.get() for _ in keys] == ["3a", "3b", "2a", "1a", "1b"]
    assert asked == keys, "weighing may mean reading an object, so each key is weighed once"

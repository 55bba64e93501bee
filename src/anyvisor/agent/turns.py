"""How many machines of one driver are worked on at the same time: one that hangs must leave workers to the others."""

from collections import Counter, deque
from collections.abc import Callable


class Turns:
    """At most `limit` turns of each driver at once; who comes too late is called by `wake` once one has ended."""

    def __init__(self, limit: int, wake: Callable[[str], None]) -> None:
        self._limit = limit
        self._wake = wake
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[str]] = {}

    def take(self, driver: str, machine_id: str) -> bool:
        """Begin a turn, which `give_back` ends; False: the machine waits for one, and `wake` names it then."""
        if self._taken[driver] < self._limit:
            self._taken[driver] += 1
            return True
        waiting = self._waiting.setdefault(driver, deque())
        if machine_id not in waiting:
            waiting.append(machine_id)
        return False

    def give_back(self, driver: str) -> None:
        """End a turn."""
        self._taken[driver] -= 1
        waiting = self._waiting.get(driver)
        if waiting:
            self._wake(waiting.popleft())
        else:
            self._waiting.pop(driver, None)
            if not self._taken[driver]:
                del self._taken[driver]

"""When changes of a running machine that failed are tried again: each time later, and told of once."""

import time
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

FIRST_RETRY: Final = 2.0
LAST_RETRY: Final = 30.0
Step = TypeVar("Step", bound=Hashable)


@dataclass(slots=True)
class Retries(Generic[Step]):
    """The tries of one machine's changes, by what is changed."""

    _failures: dict[Step, int] = field(default_factory=dict[Step, int])
    _not_before: dict[Step, float] = field(default_factory=dict[Step, float])

    @property
    def failing(self) -> bool:
        """Whether a change that is still wanted failed when it was tried last."""
        return bool(self._failures)

    def due(self, todo: Collection[Step]) -> list[Step]:
        """Those to try now; what is not wanted any more is forgotten."""
        for step in [step for step in self._not_before if step not in todo]:
            self.forget(step)
        return [step for step in todo if self._not_before.get(step, 0.0) <= time.monotonic()]

    def tried(self, step: Step, *, failed: bool) -> bool:
        """Note how a try went, and that the next is not at once; whether it failed for the first time."""
        failures = self._failures.pop(step, 0) + 1
        if failed:
            self._failures[step] = failures
        self._not_before[step] = time.monotonic() + min(FIRST_RETRY * 2.0 ** min(failures - 1, 10), LAST_RETRY)
        return failed and failures == 1

    def forget(self, step: Step) -> None:
        """It is done, or not wanted any more."""
        self._failures.pop(step, None)
        self._not_before.pop(step, None)

    def wait(self) -> float | None:
        """Seconds until the next try; None when there is none."""
        if not self._not_before:
            return None
        return max(min(self._not_before.values()) - time.monotonic(), 0.1)

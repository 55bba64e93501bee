"""How long to wait after the n-th failure in a row."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """Exponential growth from `base` to `cap` seconds; `jitter` spreads clients that failed together."""

    base: float
    cap: float
    factor: float = 2.0
    jitter: float = 0.2
    """Share of the delay that is random."""

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after `failures` failures (1 = the first); `chance` in [0, 1) is the dice."""
        exponent = min(max(failures - 1, 0), 64)
        plain = min(self.base * self.factor**exponent, self.cap)
        return plain * (1 - self.jitter + 2 * self.jitter * chance)


@dataclass(slots=True)
class Backoff:
    """Counts the failures of one thing."""

    policy: BackoffPolicy
    failures: int = 0
    chance: Callable[[], float] = field(default=random.random)

    def next(self) -> float:
        """Count one more failure and return the seconds to wait."""
        self.failures += 1
        return self.policy.delay(self.failures, self.chance())

    def reset(self) -> None:
        self.failures = 0

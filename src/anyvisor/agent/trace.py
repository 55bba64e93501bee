"""Where the time of one start goes: a mark per step, one log line per machine."""

import time


class Trace:
    """Milliseconds between marks."""

    def __init__(self) -> None:
        self._began = self._last = time.perf_counter()
        self._steps: list[tuple[str, float]] = []

    def mark(self, step: str) -> None:
        """The step before this moment is over."""
        now = time.perf_counter()
        self._steps.append((step, (now - self._last) * 1000.0))
        self._last = now

    def __str__(self) -> str:
        steps = " ".join(f"{step}={milliseconds:.1f}" for step, milliseconds in self._steps)
        return f"total={(self._last - self._began) * 1000.0:.1f} {steps}"

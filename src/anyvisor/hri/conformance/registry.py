"""The lists of checks."""

from collections.abc import Callable
from dataclasses import dataclass

from anyvisor.hri.conformance.session import Check


@dataclass(frozen=True, slots=True)
class Entry:
    """One check: a stable id, its level and what it proves."""

    id: str
    level: int
    title: str
    run: Check


class CheckList(list[Entry]):
    """The checks of one module, in the order in which they run."""

    def add(self, check_id: str, title: str, *, level: int = 0) -> Callable[[Check], Check]:
        """Put the function below on the list."""

        def decorate(function: Check) -> Check:
            self.append(Entry(check_id, level, title, function))
            return function

        return decorate

"""Knows which passes would see nothing but what the pass before them wrote.

Each write comes back as an event, and a pass over it would find nothing to do. What counts as news is left to the
shell: anything that is not a change of the object itself, and each change of it by somebody else.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Left:
    version: str
    due: float | None


class Echoes:
    """By key: how the last pass left an object, and whether something else happened since it began."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}
        self._news: set[str] = set()

    def news(self, key: str) -> None:
        """Something happened that the object's own version does not tell."""
        self._news.add(key)

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._left.pop(key, None)
        self._news.discard(key)

    def is_echo(self, key: str, version: str, now: float) -> bool:
        """Whether a pass over this version, at this time, would see only what the last one left."""
        left = self._left.get(key)
        if left is None or key in self._news or left.version != version:
            return False
        return left.due is None or now < left.due

    def wait(self, key: str, now: float) -> float | None:
        """In how many seconds the next pass is due though nothing happens; None when it is not."""
        left = self._left.get(key)
        return None if left is None or left.due is None else max(left.due - now, 0.0)

    def begin(self, key: str) -> None:
        """A pass begins: it sees all news so far, and until it ends nothing is known of it."""
        self._news.discard(key)
        self._left.pop(key, None)

    def settled(self, key: str, version: str, due: float | None) -> None:
        """A pass left the object at `version`, with nothing more to do before `due`."""
        self._left[key] = _Left(version, due)

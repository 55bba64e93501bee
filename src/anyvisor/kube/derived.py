"""What is made of all objects of a cache, made anew when one of them has changed."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from anyvisor.kube.informer import Informer
from anyvisor.kube.objects import CachedObject

T = TypeVar("T")


class Derived(Generic[T]):
    """Keeps what `make` gave for the objects of one cache; the result is shared, so nobody may change it."""

    def __init__(self, informer: Informer, make: Callable[[Sequence[CachedObject]], T]) -> None:
        self._informer = informer
        self._make = make
        self._made: tuple[Sequence[CachedObject], T] | None = None

    def get(self) -> T:
        """The result for the objects as they are now."""
        objects = self._informer.values()
        if self._made is None or self._made[0] is not objects:
            self._made = objects, self._make(objects)
        return self._made[1]


def decoded(objects: Sequence[CachedObject]) -> list[dict[str, Any]]:
    """The objects as JSON: what `Derived` keeps for those that are read often and change seldom."""
    return [one.json() for one in objects]

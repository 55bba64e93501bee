"""Descriptors with one owner each: every one is closed exactly once, on every way out."""

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Self


class Descriptors:
    """A bag of descriptors by handle; owns what was put in until it is taken out or the bag is closed."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def put(self, handle: str, descriptor: int) -> int:
        """Own `descriptor` from now on; a handle that is taken already is a bug and closes the new one."""
        if handle in self._held:
            os.close(descriptor)
            raise ValueError(f"descriptor handle {handle!r} is used twice")
        self._held[handle] = descriptor
        return descriptor

    def put_all(self, descriptors: Mapping[str, int]) -> None:
        """Own all of them; when one cannot be owned, the rest is closed too."""
        left = dict(descriptors)
        try:
            while left:
                handle, descriptor = left.popitem()
                self.put(handle, descriptor)
        except ValueError:
            for descriptor in left.values():
                os.close(descriptor)
            raise

    def get(self, handle: str) -> int | None:
        """The descriptor, still ours; None when there is none of that handle."""
        return self._held.get(handle)

    def take(self, handle: str) -> int:
        """Hand the descriptor over to the caller; raises KeyError."""
        return self._held.pop(handle)

    def handles(self) -> frozenset[str]:
        """Which are held."""
        return frozenset(self._held)

    def close(self) -> None:
        """Close all that are held."""
        while self._held:
            os.close(self._held.popitem()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

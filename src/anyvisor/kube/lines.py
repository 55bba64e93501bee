"""Splits a stream of chunks into lines of bounded length (a watch is one JSON object a line)."""

LINE_LIMIT = 8 * 1024 * 1024
"""Bytes of one event: an object is at most 1.5 MiB in etcd, its JSON may be several times that."""


class LineTooLong(Exception):  # noqa: N818 - the name is the condition
    """The peer sent more than the limit without a line end."""


class LineSplitter:
    """Collects chunks and gives back whole lines; sans-I/O."""

    __slots__ = ("_limit", "_parts", "_size")

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their ends and without empty ones.

        Raises LineTooLong when the unfinished line outgrows the limit.
        """
        head, found, tail = chunk.partition(b"\n")
        if not found:
            self._keep(chunk)
            return []
        self._keep(head)
        lines = [b"".join(self._parts), *tail.split(b"\n")]
        rest = lines.pop()
        self._parts, self._size = [], 0
        self._keep(rest)
        return [line for line in lines if line.strip()]

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise LineTooLong(f"a line of the watch is longer than {self._limit} bytes")
        if part:
            self._parts.append(part)

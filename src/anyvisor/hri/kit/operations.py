"""Operations: accepted once, replayed by id, observed, cancelled, bounded in time and number."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from typing import Final

from google.protobuf.message import Message

from anyvisor.hri.errors import DeadlineExceeded, DriverFault, HriError, OperationCancelled, OperationConflict
from anyvisor.hri.v1.types_pb2 import Operation

KEPT_OPERATIONS: Final = 512
KEPT_PER_MACHINE: Final = 4


def content_digest(kind: str, request: Message) -> bytes:
    """What a replay must equal: method and request, without the descriptor tokens, which are single use."""
    content = request
    if "tokens" in request.DESCRIPTOR.fields_by_name:
        content = type(request)()
        content.CopyFrom(request)
        content.ClearField("tokens")
    return hashlib.sha256(kind.encode() + b"\0" + content.SerializeToString(deterministic=True)).digest()


class Entry:
    """One operation: its public record, and for calls that answer with a message, the answer."""

    def __init__(self, operation_id: str, machine_id: str, kind: str, digest: bytes) -> None:
        self.record = Operation(id=operation_id, machine_id=machine_id, kind=kind, state=Operation.STATE_RUNNING)
        self.digest = digest
        self.response: Message | None = None
        self.error: HriError | None = None
        self.done = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it has no outcome yet."""
        return self.record.state == Operation.STATE_RUNNING

    def finish(self, response: Message | None, error: HriError | None) -> None:
        """Record the outcome once."""
        self.response = response
        self.error = error
        record = self.record
        if error is None:
            record.state = Operation.STATE_DONE
            record.percent = 100
        else:
            cancelled = isinstance(error, OperationCancelled)
            record.state = Operation.STATE_CANCELLED if cancelled else Operation.STATE_FAILED
            record.error_code = error.status
            record.message = error.message
            record.findings.extend(error.findings)
        self.done.set()


class OperationTable:
    """Operations by id. Finished ones are kept for replay, the oldest dropped first."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._running: dict[str, list[Entry]] = {}

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def find(self, operation_id: str) -> Entry | None:
        """The operation, or None when it never was or is forgotten."""
        return self._entries.get(operation_id)

    def replay(self, operation_id: str, digest: bytes) -> Entry | None:
        """The operation of an earlier call with this id; OperationConflict when its content was another."""
        entry = self._entries.get(operation_id)
        if entry is not None and entry.digest != digest:
            raise OperationConflict(
                f"operation id {operation_id!r} was used for {entry.record.kind} of machine "
                f"{entry.record.machine_id!r} with other content; choose a new id for a new operation",
                operation_id=operation_id,
            )
        return entry

    def add(self, entry: Entry, machines: int) -> None:
        """Keep the operation; `machines` (how many there are) sets how many finished ones are worth keeping."""
        self._entries[entry.record.id] = entry
        self._running.setdefault(entry.record.machine_id, []).append(entry)
        allowed = max(KEPT_OPERATIONS, KEPT_PER_MACHINE * machines)
        if len(self._entries) > allowed:
            excess = len(self._entries) - allowed
            finished = (e.record.id for e in self._entries.values() if not e.running)
            for old in list(islice(finished, excess)):
                del self._entries[old]

    def running(self, machine_id: str) -> list[Entry]:
        """Those of one machine that have no outcome yet, oldest first."""
        return [entry for entry in self._running.get(machine_id, ()) if entry.running]

    def settled(self, entry: Entry) -> None:
        """The operation has its outcome: it no longer counts among those of its machine."""
        left = [other for other in self._running.get(entry.record.machine_id, ()) if other is not entry]
        if left:
            self._running[entry.record.machine_id] = left
        else:
            self._running.pop(entry.record.machine_id, None)


async def run(
    entry: Entry,
    body: Callable[[], Awaitable[Message | None]],
    *,
    seconds: float,
    failed: Callable[[Entry, BaseException], None],
) -> None:
    """Run the body of an operation to an outcome; raises nothing. `failed` hears of errors that nobody foresaw."""
    response: Message | None = None
    error: HriError | None = None
    operation_id = entry.record.id
    kind = entry.record.kind
    try:
        async with asyncio.timeout(seconds):
            response = await body()
    except HriError as raised:
        error = raised
    except TimeoutError:
        error = DeadlineExceeded(f"{kind} had no outcome within {seconds:g} s; it was abandoned", retry="backoff")
    except asyncio.CancelledError:
        error = OperationCancelled(f"{kind} was cancelled before it was done")
    except Exception as raised:  # noqa: BLE001 - whatever a driver raises becomes an outcome
        failed(entry, raised)
        error = DriverFault(f"{kind} failed inside the driver: {type(raised).__name__}: {raised}")
    if error is not None:
        error.operation_id = operation_id
    entry.finish(response, error)

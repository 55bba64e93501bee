"""The event stream in pieces, cut off, and flooded."""

import itertools
import json
import os

from hypothesis import given, settings
from hypothesis import strategies as st

from anyvisor.drivers.cloud_hypervisor.channel import EventChannel
from anyvisor.drivers.cloud_hypervisor.events import MAX_EVENT, Event, EventReader


def text(source: str, name: str, properties: dict[str, str] | None = None) -> bytes:
    stamp = {"secs": 1, "nanos": 500_000_000}
    found = {"timestamp": stamp, "source": source, "event": name, "properties": properties}
    return json.dumps(found, indent=2).encode() + b"\n\n"


STREAM = (
    text("vmm", "starting") + text("vm", "booted") + text("vm", "device-removed", {"id": "d", "bdf": "0000:00:05.0"})
)
EVENTS = [
    Event("vmm", "starting", {}, 1.5),
    Event("vm", "booted", {}, 1.5),
    Event("vm", "device-removed", {"id": "d", "bdf": "0000:00:05.0"}, 1.5),
]


@settings(deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=60), min_size=1))
def test_events_may_come_in_any_pieces(sizes: list[int]) -> None:
    reader, found, rest = EventReader(), list[Event](), STREAM
    for size in itertools.cycle(sizes):
        if not rest:
            break
        found += reader.feed(rest[:size])
        rest = rest[size:]
    assert (found, reader.lost) == (EVENTS, 0)


@settings(deadline=None)
@given(st.integers(min_value=0, max_value=len(STREAM)), st.integers(min_value=0, max_value=len(STREAM)))
def test_what_follows_a_gap_is_read(first: int, second: int) -> None:
    start, end = sorted((first, second))
    reader = EventReader()
    found = reader.feed(STREAM[:start] + STREAM[end:] + text("vm", "paused") + text("vm", "resumed"))
    assert found[-1] == Event("vm", "resumed", {}, 1.5)
    assert len(found) + reader.lost >= 2


@settings(deadline=None)
@given(st.binary(max_size=4096))
def test_any_bytes_are_survived(data: bytes) -> None:
    reader = EventReader()
    reader.feed(data + b"\n")
    assert reader.feed(b"}\n" + text("vm", "booted"))[-1:] == [EVENTS[1]]


def test_object_that_is_no_event_is_counted() -> None:
    reader = EventReader()
    assert reader.feed(b'{\n"source": 7\n}\n{\n"a"\n}\n') == []
    assert reader.lost == 2


def test_memory_is_bounded() -> None:
    reader = EventReader()
    for _ in range(64):
        reader.feed(b"{\n" + b"x" * MAX_EVENT)
    assert len(reader._line) + len(reader._object or b"") <= 2 * MAX_EVENT
    assert reader.feed(b"\n" + text("vm", "booted")) == [EVENTS[1]]


async def test_channel_tells_events_and_gaps() -> None:
    readable, writable = os.pipe()
    found, gaps = list[Event](), list[int]()
    channel = EventChannel(readable, found.append, lambda: gaps.append(1))
    os.write(writable, STREAM + b"broken\n" + text("vm", "paused"))
    channel.drain()
    assert [event.name for event in found] == ["starting", "booted", "device-removed", "paused"]
    assert gaps == [1]
    os.close(writable)
    channel.drain()
    channel.drain()  # closed by itself

"""The QMP core: any chunking gives the same messages, and whatever is not QMP ends the session."""

import contextlib
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.drivers.qemu.qmp import Event, Failure, Greeting, Message, ProtocolError, QmpCore, Reply

GREETING: dict[str, Any] = {
    "QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 22}, "package": "x"}, "capabilities": []}
}
STREAM: list[tuple[dict[str, Any], Message]] = [
    ({"event": "RTC_CHANGE", "timestamp": {}}, Event("RTC_CHANGE", {})),  # before the greeting, as seen in the field
    (GREETING, Greeting("7.2.22")),
    ({"return": {}, "id": 1}, Reply(1, {})),
    ({"event": "STOP", "data": {"a": [1, 2]}}, Event("STOP", {"a": [1, 2]})),
    ({"return": [{"x": "y" * 5000}], "id": 2}, Reply(2, [{"x": "y" * 5000}])),
    ({"error": {"class": "GenericError", "desc": "no"}, "id": 3}, Failure(3, "GenericError", "no")),
    ({"error": {"class": "GenericError", "desc": "no json"}}, Failure(0, "GenericError", "no json")),
]
BYTES = b"".join(json.dumps(raw).encode() + b"\r\n" for raw, _ in STREAM)
MESSAGES = [message for _, message in STREAM]


@given(st.lists(st.integers(0, len(BYTES)), max_size=30))
def test_any_chunking_gives_the_same_messages(cuts: list[int]) -> None:
    core = QmpCore()
    places = [0, *sorted(cuts), len(BYTES)]
    seen = [message for i, j in pairwise(places) for message in core.feed(BYTES[i:j])]
    assert seen == MESSAGES


def test_commands_are_numbered_and_end_with_a_newline() -> None:
    core = QmpCore()
    assert core.command("stop") == (1, b'{"execute":"stop","id":1}\n')
    assert core.command("cont", {"a": "b"}) == (2, b'{"execute":"cont","id":2,"arguments":{"a":"b"}}\n')


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b'"text"',
        b"{}",
        b'{"error": 1}',
        b'{"QMP": {}}',
        b'{"QMP": {"version": {"qemu": {"major": "x", "minor": 1, "micro": 1}}}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_is_not_qmp_ends_the_session(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        QmpCore().feed(line + b"\n")


def test_a_line_without_end_is_refused_before_memory_is() -> None:
    core = QmpCore(max_line_bytes=1000)
    assert core.feed(b"x" * 999) == []
    with pytest.raises(ProtocolError, match="more than 1000"):
        core.feed(b"x" * 2)


@given(st.binary(max_size=300))
def test_no_bytes_do_anything_but_messages_or_protocol_errors(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(QmpCore().feed(data + b"\n")) <= data.count(b"\n") + 1


def test_texts_of_errors_are_cut() -> None:
    line = json.dumps({"error": {"class": "c", "desc": "d" * 100_000}, "id": 1}).encode() + b"\n"
    [failure] = QmpCore().feed(line)
    assert isinstance(failure, Failure)
    assert len(failure.description) == 4096

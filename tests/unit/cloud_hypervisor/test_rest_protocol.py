"""Requests and answers byte by byte, hostile ones among them."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyvisor.drivers.cloud_hypervisor.rest import (
    MAX_REQUEST_BODY,
    ProtocolError,
    RequestTooLarge,
    ResponseReader,
    request,
)
from anyvisor.drivers.cloud_hypervisor.rest.protocol import MAX_BODY, MAX_HEAD, Response

EMPTY = b"HTTP/1.1 204 \r\nServer: Cloud Hypervisor API\r\nConnection: keep-alive\r\n\r\n"
ERROR = b'["Error from API","The VM could not boot","VM config is missing"]'


def answer(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} \r\nServer: Cloud Hypervisor API\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_request_with_a_body_is_whole() -> None:
    head, _, body = request("PUT", "vm.resize", {"desired_vcpus": 2}).partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"PUT /api/v1/vm.resize HTTP/1.1"
    assert f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")
    assert json.loads(body) == {"desired_vcpus": 2}


def test_action_has_no_body_and_no_length() -> None:
    """An action that comes with a body, be it `{}`, is answered by 400."""
    message = request("PUT", "vm.boot")
    assert message.endswith(b"\r\n\r\n")
    assert b"Content" not in message


def test_body_above_the_limit_is_not_sent() -> None:
    request("PUT", "vm.create", "x" * (MAX_REQUEST_BODY - 2))
    with pytest.raises(RequestTooLarge, match="51200 are allowed"):
        request("PUT", "vm.create", "x" * (MAX_REQUEST_BODY - 1))


@settings(deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=40), min_size=1))
def test_answers_may_come_in_any_pieces(sizes: list[int]) -> None:
    stream = EMPTY + answer(200, b'{"a":1}') + answer(404, ERROR) + answer(400, b"")
    reader, found, rest = ResponseReader(), list[Response](), stream
    for size in itertools.cycle(sizes):
        if not rest:
            break
        found += reader.feed(rest[:size])
        rest = rest[size:]
    assert [each.status for each in found] == [204, 200, 404, 400]
    assert found[1].json() == {"a": 1}
    assert found[2].errors == ("Error from API", "The VM could not boot", "VM config is missing")
    assert found[3].errors == ()


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (b'{ "error": "Request payload is too large" }', ("Request payload is too large",)),
        (b'{ "error": "two\nlines" }', ('{ "error": "two\nlines" }',)),
        (b'"text"', ("text",)),
        (b"", ()),
        (b"[" * 100_000, (("[" * 400),)),
    ],
)
def test_errors_of_any_shape(body: bytes, errors: tuple[str, ...]) -> None:
    assert Response(500, body).errors == errors


@pytest.mark.parametrize(
    "stream",
    [
        b"HTTP/1.1 400 \r\nServer: Firecracker API\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        f"HTTP/1.1 200 OK\r\nContent-Length: {MAX_BODY + 1}\r\n\r\n".encode(),
        b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n",
        b"\x00" * (MAX_HEAD + 1),
    ],
)
def test_what_is_no_answer_ends_the_connection(stream: bytes) -> None:
    with pytest.raises(ProtocolError):
        ResponseReader().feed(stream)


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"[" * 100_000])
def test_result_must_be_an_object(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        Response(200, body).json()

"""Answers of the instance's server, as the command line reads them."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.cli.http import ProtocolError, Response


def answer(text: bytes) -> Response:
    return Response(io.BytesIO(text))


def chunked(pieces: list[bytes]) -> bytes:
    body = b"".join(f"{len(piece):x};note=1\r\n".encode() + piece + b"\r\n" for piece in pieces)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\nTrailer: x\r\n\r\n"


def test_a_body_with_a_length_leaves_what_follows() -> None:
    stream = io.BytesIO(b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\nX: y\r\n\r\nabcHTTP")
    response = Response(stream)
    assert (response.status, response.headers["x"], response.read()) == (404, "y", b"abc")
    assert (response.piece(), stream.read()) == (b"", b"HTTP")


def test_a_body_until_the_end_of_the_connection() -> None:
    assert answer(b"HTTP/1.0 200 OK\n\nall of it").read() == b"all of it"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_an_answer_without_a_body(status: bytes) -> None:
    assert answer(b"HTTP/1.1 " + status + b"\r\n\r\nnext").read() == b""


@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=5))
def test_chunks_come_as_they_are(pieces: list[bytes]) -> None:
    response = answer(chunked(pieces))
    assert b"".join(iter(response.piece, b"")) == b"".join(pieces)
    assert response.read() == b""


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nhalf",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"b" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_an_error(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        answer(text).read()

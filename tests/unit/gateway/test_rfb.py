"""Pictures of displays: the protocol step by step, a hostile display, and the PNG that comes out."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.gateway.rfb import NO_AUTHENTICATION, Picture, RfbError, png, session


def hello(width: int, height: int, name: bytes = b"guest") -> bytes:
    return (
        b"RFB 003.008\n"
        + bytes([2, 2, NO_AUTHENTICATION])
        + struct.pack(">I", 0)
        + struct.pack(">HH16sI", width, height, bytes(16), len(name))
        + name
    )


def update(*rectangles: tuple[int, int, int, int, bytes]) -> bytes:
    body = b"".join(struct.pack(">HHHHi", x, y, w, h, 0) + pixels for x, y, w, h, pixels in rectangles)
    return struct.pack(">BxH", 0, len(rectangles)) + body


def play(script: bytes, **options: Any) -> tuple[Picture, bytes]:
    """Run a session against what a display sends; returns the picture and what the client said."""
    steps, said, at = session(**options), b"", 0
    wanted = next(steps)
    try:
        while True:
            if isinstance(wanted, bytes):
                said += wanted
                wanted = steps.send(b"")
                continue
            part = script[at : at + wanted]
            at += wanted
            if len(part) < wanted:
                raise RfbError("the script ends")
            wanted = steps.send(part)
    except StopIteration as end:
        return end.value, said


def pixels(count: int, value: int) -> bytes:
    return bytes([value, value + 1, value + 2, 0]) * count


def test_a_frame_in_parts_becomes_one_picture() -> None:
    extras = b"\x02" + struct.pack(">BxHH", 1, 0, 1) + bytes(6) + struct.pack(">B3xI", 3, 2) + b"hi"
    script = hello(2, 2) + extras + update((0, 0, 2, 1, pixels(2, 10))) + update((0, 1, 2, 1, pixels(2, 50)))
    picture, said = play(script, move_cursor=True)
    assert (picture.width, picture.height) == (2, 2)
    assert picture.pixels == pixels(2, 10) + pixels(2, 50)
    assert said.startswith(b"RFB 003.008\n\x01\x01\x00")
    assert said.endswith(struct.pack(">BBHHHH", 3, 0, 0, 0, 2, 2))
    assert struct.pack(">BBHH", 5, 0, 1, 1) in said


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (b"HTTP/1.1 400", "is no RFB"),
        (b"RFB 003.008\n\0" + struct.pack(">I", 4) + b"busy", "refuses: busy"),
        (b"RFB 003.008\n\x01\x02", "password"),
        (b"RFB 003.008\n\x01\x01" + struct.pack(">II", 1, 2) + b"no", "refuses: no"),
        (hello(0, 10), "0 x 10 pixels"),
        (hello(60000, 60000), "are pictured"),
        (hello(1, 1) + b"\x09", "unknown kind 9"),
        (hello(1, 1) + struct.pack(">BxHHHHHi", 0, 1, 0, 0, 1, 1, 7), "encoding 7"),
        (hello(1, 1) + struct.pack(">BxHHHHHi", 0, 1, 1, 0, 1, 1, 0), "outside of it"),
        (hello(1, 1) + struct.pack(">B3xI", 3, 2**31), "a text of"),
    ],
)
def test_a_display_that_lies_is_found_out(script: bytes, says: str) -> None:
    with pytest.raises(RfbError, match=says):
        play(script)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_picture_or_an_error(tail: bytes) -> None:
    for script in (tail, hello(4, 4) + tail):
        try:
            picture, _ = play(script)
        except RfbError:
            continue
        assert len(picture.pixels) == picture.width * picture.height * 4


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_a_png_holds_the_pixels(width: int, height: int, data: st.DataObject) -> None:
    raw = data.draw(st.binary(min_size=width * height * 4, max_size=width * height * 4))
    body = png(Picture(width, height, raw))
    assert body[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(body):
        (length,) = struct.unpack(">I", body[at : at + 4])
        kind, content = body[at + 4 : at + 8], body[at + 8 : at + 8 + length]
        assert struct.unpack(">I", body[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + content),)
        chunks[kind] = content
        at += 12 + length
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (width, height, 8, 2, 0, 0, 0)
    lines = zlib.decompress(chunks[b"IDAT"])
    row = 1 + width * 3
    colours = b"".join(lines[start + 1 : start + row] for start in range(0, height * row, row))
    assert colours == bytes(raw[i * 4 + channel] for i in range(width * height) for channel in (2, 1, 0))

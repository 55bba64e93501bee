"""A picture of a display over RFB 3.8 (RFC 6143): enough of a client to ask for one frame. Sans-I/O.

`session` is a generator: it yields bytes to send, or the number of bytes that it needs next and is sent those.
"""

import struct
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

VERSION: Final = b"RFB 003.008\n"
PIXELS_LIMIT: Final = 4096 * 4096
"""Pixels of the largest display that is pictured: 64 MiB of what a VMM sends."""
TEXT_LIMIT: Final = 1024 * 1024
NO_AUTHENTICATION: Final = 1
RAW: Final = 0

_FORMAT: Final = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
"""32 bits a pixel, little-endian: blue, green, red, unused."""
_PIXEL: Final = 4

Session = Generator[bytes | int, bytes, "Picture"]
"""Yields what to send or how much to read; returns the picture; raises RfbError."""
Step = Generator[bytes | int, bytes, None]


class RfbError(Exception):
    """The display server said something that is no RFB 3.8, or asks for what we do not have."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A frame: `pixels` holds blue, green, red and a spare byte for each, row by row."""

    width: int
    height: int
    pixels: bytes


def session(*, move_cursor: bool = False) -> Session:
    """Take one frame; `move_cursor` wakes displays that went to sleep."""
    yield from _handshake()
    width, height = struct.unpack(">HH", (yield 4))
    if not 0 < width * height <= PIXELS_LIMIT:
        raise RfbError(f"the display has {width} x {height} pixels: at most {PIXELS_LIMIT} are pictured")
    yield from _skip_name()
    yield struct.pack(">B3x", 0) + _FORMAT
    yield struct.pack(">BxHi", 2, 1, RAW)
    if move_cursor:
        yield struct.pack(">BBHH", 5, 0, 0, 0) + struct.pack(">BBHH", 5, 0, 1, 1)
    yield struct.pack(">BBHHHH", 3, 0, 0, 0, width, height)
    canvas = bytearray(width * height * _PIXEL)
    painted = 0
    while painted < width * height:
        painted += yield from _message(canvas, width, height)
    return Picture(width, height, bytes(canvas))


def _handshake() -> Step:
    version = yield len(VERSION)
    if version[:4] != VERSION[:4]:
        raise RfbError(f"the display answers {version!r}, which is no RFB")
    yield VERSION
    (count,) = yield 1
    if count == 0:
        raise RfbError(f"the display refuses: {(yield from _text())}")
    if NO_AUTHENTICATION not in (yield count):
        raise RfbError("the display asks for a password")
    yield bytes([NO_AUTHENTICATION])
    (result,) = struct.unpack(">I", (yield 4))
    if result:
        raise RfbError(f"the display refuses: {(yield from _text())}")
    yield b"\x01"  # shared: others keep their view


def _skip_name() -> Step:
    yield 16
    yield from _text()


def _text() -> Generator[bytes | int, bytes, str]:
    (length,) = struct.unpack(">I", (yield 4))
    if length > TEXT_LIMIT:
        raise RfbError(f"the display sends a text of {length} bytes")
    return (yield length).decode("latin-1") if length else ""


def _message(canvas: bytearray, width: int, height: int) -> Generator[bytes | int, bytes, int]:
    """Read one message; returns how many pixels it painted."""
    (kind,) = yield 1
    match kind:
        case 0:
            (count,) = struct.unpack(">xH", (yield 3))
            painted = 0
            for _ in range(count):
                painted += yield from _rectangle(canvas, width, height)
            return painted
        case 1:
            (colours,) = struct.unpack(">x2xH", (yield 5))
            if colours:
                yield colours * 6
        case 2:
            pass
        case 3:
            yield 3
            yield from _text()
        case _:
            raise RfbError(f"the display sends a message of the unknown kind {kind}")
    return 0


def _rectangle(canvas: bytearray, width: int, height: int) -> Generator[bytes | int, bytes, int]:
    x, y, columns, rows, encoding = struct.unpack(">HHHHi", (yield 12))
    if encoding != RAW:
        raise RfbError(f"the display sends encoding {encoding}, which nobody asked for")
    if x + columns > width or y + rows > height:
        raise RfbError("the display sends a part that lies outside of it")
    if not columns or not rows:
        return 0
    pixels = yield columns * rows * _PIXEL
    step = columns * _PIXEL
    for row in range(rows):
        at = ((y + row) * width + x) * _PIXEL
        canvas[at : at + step] = pixels[row * step : (row + 1) * step]
    return columns * rows


def png(picture: Picture) -> bytes:
    """Encode a picture as PNG (RFC 2083), true colour without alpha."""
    count = picture.width * picture.height
    colours = bytearray(count * 3)
    for channel in range(3):
        colours[channel::3] = picture.pixels[2 - channel :: _PIXEL]
    row = picture.width * 3
    lines = b"".join(b"\0" + colours[at : at + row] for at in range(0, count * 3, row))
    header = struct.pack(">IIBBBBB", picture.width, picture.height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, chunks))


def _chunk(chunk: tuple[bytes, bytes]) -> bytes:
    kind, data = chunk
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

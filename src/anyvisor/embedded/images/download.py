"""Fetch one file by HTTP, unpacking it on the way: `python -m ... FILE BYTES`, with the request as JSON in FILE.

Runs confined (`tool`), writes `input` beside FILE, and prints percentages. A transfer that is cut off goes on where it
was, as long as the server still has the same content (RFC 9110, sections 13.1.5 and 14.2).
"""

import bz2
import itertools
import json
import lzma
import os
import ssl
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, Final, Protocol
from urllib import request as http
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

MODULE: Final = "anyvisor.embedded.images.download"
TARGET: Final = "input"
SILENCE_SECONDS: Final = 60.0
RESUMPTIONS: Final = 5
_CHUNK: Final = 1 << 16  # packed, it may become a thousand times as much in memory
_TELL_SECONDS: Final = 0.5


class DownloadError(Exception):
    """It cannot be fetched; the message says why."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file and how to ask for it; `headers` go to its own host only."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    certificates: str = ""
    """Authorities to trust instead of the machine's, in PEM."""


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


_PACKED: Final[Mapping[bytes, Callable[[], _Unpacker]]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    b"\xfd7zXZ": lzma.LZMADecompressor,
    b"BZh": bz2.BZ2Decompressor,
}


class _Redirects(http.HTTPRedirectHandler):
    """Follows redirections, without the request's own headers where they lead to another host."""

    def redirect_request(
        self, req: http.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> http.Request | None:
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:
            for name, value in req.unredirected_hdrs.items():
                made.add_unredirected_header(name, value)
        return made


def fetch(wanted: Wanted, target: Path, limit: int, tell: Callable[[int, int], None]) -> None:
    """Write the unpacked content, sparse, of at most `limit` bytes; `tell` hears bytes that came, and of how many.

    Raises:
        DownloadError: it does not come, does not end, or is too large.
    """
    size = 0
    with target.open("wb") as file:
        for chunk in _unpacked(_transferred(wanted, tell)):
            size += len(chunk)
            if size > limit:
                raise DownloadError(f"holds more than {limit} bytes, which is more than the claim can take")
            if chunk.count(0) == len(chunk):
                file.seek(len(chunk), os.SEEK_CUR)
            else:
                file.write(chunk)
        file.truncate(size)


def _transferred(wanted: Wanted, tell: Callable[[int, int], None]) -> Iterator[bytes]:
    """The bytes as they are sent, over as many requests as it takes."""
    opener, here, total, cut = _opener(wanted), 0, 0, 0
    same = ""
    while True:
        before = here
        try:
            with opener.open(_request(wanted, here, same), timeout=SILENCE_SECONDS) as response:
                if here and response.status != 206:
                    raise DownloadError("was cut off, and its server cannot go on where it was")
                if not here:
                    total = int(response.headers.get("Content-Length") or 0)
                    same = _validator(response.headers)
                while chunk := response.read(_CHUNK):
                    here += len(chunk)
                    tell(here, total)
                    yield chunk
            if here >= total:
                return
            why = f"was cut off: {here} of {total} bytes came"
        except HTTPError as error:
            raise DownloadError(f"the server answers {error.code} {error.reason}") from error
        except (URLError, HTTPException, OSError, ValueError) as error:
            why = f"the transfer failed after {here} bytes: {getattr(error, 'reason', None) or error or repr(error)}"
        cut = 0 if here > before else cut + 1
        if not here or not same or cut > RESUMPTIONS:
            raise DownloadError(why)


def _validator(headers: Message) -> str:
    """What tells the same content later; empty where the server has none, or cannot send a part."""
    etag = headers.get("ETag") or ""
    if "bytes" not in (headers.get("Accept-Ranges") or ""):
        return ""
    return headers.get("Last-Modified") or "" if not etag or etag.startswith("W/") else etag


def _request(wanted: Wanted, begin: int, same: str) -> http.Request:
    headers = {"User-Agent": "anyvisor", "Accept-Encoding": "identity"}
    made = http.Request(wanted.url, headers=headers)  # noqa: S310 - the opener knows HTTP alone
    for name, value in wanted.headers.items():
        made.add_unredirected_header(name, value)
    if begin:
        made.add_header("Range", f"bytes={begin}-")
        made.add_header("If-Range", same)
    return made


def _opener(wanted: Wanted) -> http.OpenerDirector:
    """Knows HTTP alone: no redirection leads to a file of this machine."""
    context = ssl.create_default_context(cadata=wanted.certificates or None)
    opener = http.OpenerDirector()
    handlers = (
        *(http.ProxyHandler(), http.UnknownHandler(), http.HTTPHandler(), http.HTTPSHandler(context=context)),
        *(http.HTTPDefaultErrorHandler(), _Redirects(), http.HTTPErrorProcessor()),
    )
    for handler in handlers:
        opener.add_handler(handler)
    return opener


def _unpacked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The content of a packed stream, also of several packed ones in a row; any other as it is."""
    first = next(chunks, b"")
    make = next((make for magic, make in _PACKED.items() if first.startswith(magic)), None)
    if make is None:
        yield first
        yield from chunks
        return
    unpacker = make()
    try:
        for chunk in itertools.chain([first], chunks):
            data = chunk
            while data:
                if unpacker.eof:
                    unpacker = make()
                yield unpacker.decompress(data)
                data = unpacker.unused_data
    except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
        raise DownloadError(f"is packed and damaged: {error}") from error
    if not unpacker.eof:
        raise DownloadError("is packed and cut off")


def main(words: list[str]) -> int:
    """The exit code."""
    place, limit = Path(words[0]), int(words[1])
    told = [0.0]

    def tell(here: int, total: int) -> None:
        if time.monotonic() - told[0] >= _TELL_SECONDS or here == total:
            told[0] = time.monotonic()
            print(f"({100 * here // total if total else 0}%)", flush=True)

    try:
        fetch(Wanted(**json.loads(place.read_bytes())), place.parent / TARGET, limit, tell)
    except DownloadError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"it cannot be stored: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

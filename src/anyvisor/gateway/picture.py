"""Takes a picture of a display that is seen over RFB."""

import asyncio
from typing import Final

import aiohttp

from anyvisor.gateway.rfb import Picture, RfbError, png, session
from anyvisor.gateway.splice import End

TIMEOUT: Final = 10.0
"""Seconds for a whole picture; a display that sleeps may never send one."""


class PictureError(Exception):
    """No picture could be taken; the message says why."""


async def take_picture(display: End, *, move_cursor: bool = False) -> bytes:
    """Return the display as PNG, and close the connection. Raises PictureError."""
    try:
        async with asyncio.timeout(TIMEOUT):
            picture = await _frame(display, move_cursor=move_cursor)
        return await asyncio.to_thread(png, picture)
    except TimeoutError as error:
        raise PictureError(f"the display sent no picture within {TIMEOUT:.0f} s") from error
    except (RfbError, aiohttp.ClientError, OSError) as error:
        raise PictureError(f"the display could not be pictured: {error}") from error
    finally:
        await display.close()


async def _frame(display: End, *, move_cursor: bool) -> Picture:
    steps = session(move_cursor=move_cursor)
    received = bytearray()
    wanted = next(steps)
    chunks = aiter(display)
    try:
        while True:
            if isinstance(wanted, bytes):
                await display.send(wanted)
                wanted = steps.send(b"")
            elif len(received) >= wanted:
                part = bytes(received[:wanted])
                del received[:wanted]
                wanted = steps.send(part)
            else:
                received += await anext(chunks)
    except StopIteration as end:
        return end.value
    except StopAsyncIteration:
        raise RfbError("it was closed before a picture was complete") from None

"""Programs that read content from users or from the network: confined, watched, and ended when nothing comes.

A program tells how far it is by percentages on its standard output, as image converters do.
"""

import asyncio
import contextlib
import os
import re
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.images.confined import MODULE

MEMORY_BYTES: Final = 2 * 1024**3
STALL_SECONDS: Final = 300.0
LAST_WORDS: Final = 300
_PERCENT: Final = re.compile(rb"(\d{1,3}(?:\.\d+)?)(?:/100)?%")
_CHUNK: Final = 4096

Progress = Callable[[int, int], None]
"""Told how much is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a program may use: a user without rights, one directory, and no file larger than `file_bytes`."""

    user: int
    directory: Path
    file_bytes: int
    environment: Mapping[str, str]
    stall_seconds: float = STALL_SECONDS
    """Without a word on its standard output."""


async def run(command: Sequence[str], limits: Confinement, progress: Progress) -> None:
    """Run it to its end.

    Raises:
        ImageError: it failed; the message has its last words.
    """
    words = [sys.executable, "-m", MODULE, str(limits.user), str(limits.directory), str(limits.file_bytes), *command]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **limits.environment,
        },
    )
    try:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        said = await _follow(process, limits.stall_seconds, progress)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise ImageError(said or f"{command[0]} ended with {process.returncode}")


async def _follow(process: asyncio.subprocess.Process, stall_seconds: float, progress: Progress) -> str:
    """Read until both ends close and it has ended; the last words on standard error."""
    assert process.stdout is not None
    assert process.stderr is not None
    telling = asyncio.ensure_future(_last_words(process.stderr))
    try:
        seen = b""
        while data := await asyncio.wait_for(process.stdout.read(_CHUNK), stall_seconds):
            seen = (seen + data)[-64:]
            if found := _PERCENT.findall(seen):
                progress(min(int(float(found[-1])), 100), 100)
        said = await asyncio.wait_for(telling, stall_seconds)
        await process.wait()
    except TimeoutError as error:
        raise ImageError(f"the tool has told nothing for {stall_seconds:g} s") from error
    finally:
        telling.cancel()
    return said.decode(errors="replace").strip()


async def _last_words(stream: asyncio.StreamReader) -> bytes:
    said = b""
    while data := await stream.read(_CHUNK):
        said = (said + data)[-LAST_WORDS:]
    return said

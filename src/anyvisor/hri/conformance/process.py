"""The driver as a process of this program, so that it can be killed and started anew."""

import asyncio
import contextlib
import os
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

START_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.05


class DriverStartError(Exception):
    """The driver's command did not bring up its socket; the message says what became of it."""


class DriverProcess:
    """One driver, started by a command with `{hri}` and `{fd}` in it."""

    def __init__(self, command: str, hri_socket: str, fd_socket: str) -> None:
        self._words = [word.format(hri=hri_socket, fd=fd_socket) for word in shlex.split(command)]
        self._hri = hri_socket
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """The driver's process; 0 before the first start."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Run the command and wait until the socket accepts."""
        self._process = await asyncio.create_subprocess_exec(
            *self._words, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._accepts():
                    if self._process.returncode is not None:
                        raise DriverStartError(
                            f"{self._words[0]} ended with status {self._process.returncode} before it served"
                        )
                    await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise DriverStartError(f"{self._words[0]} did not serve {self._hri} within {START_SECONDS:g} s") from None

    async def _accepts(self) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(self._hri)
        except OSError:
            return False
        writer.close()
        return True

    async def kill(self) -> None:
        """kill -9, and wait for it."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def driver_process(command: str, hri_socket: str, fd_socket: str) -> AsyncGenerator[DriverProcess]:
    """A driver that runs for as long as the block."""
    process = DriverProcess(command, hri_socket, fd_socket)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()
        for path in (hri_socket, fd_socket):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

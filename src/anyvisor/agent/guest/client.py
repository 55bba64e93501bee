"""Asks the agent inside a guest: one exchange at a time, each on a connection of its own, each with a deadline."""

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from anyvisor.agent.guest.protocol import Answers, GuestAgentError, GuestAgentSilent, request, synchronise
from anyvisor.api.meta import Json

ASK_SECONDS: Final = 5.0
FREEZE_SECONDS: Final = 50.0
"""Freezing waits until the guest's disks have what was written; the gateway waits a minute."""
CHUNK_BYTES: Final = 64 * 1024
_NUMBERS: Final = 1 << 53
"""Integers that every JSON reader keeps."""

Connect = Callable[[], Awaitable[socket.socket]]


class GuestAgentClient:
    """`connect` opens the channel, `release` says that it is closed again."""

    def __init__(self, connect: Connect, release: Callable[[], None] = lambda: None) -> None:
        self._connect = connect
        self._release = release
        self._turn = asyncio.Lock()

    async def ask(self, command: str, arguments: Json | None = None, seconds: float = ASK_SECONDS) -> Any:
        """What the command returns; raises GuestAgentError, and GuestAgentSilent when nobody answers."""
        answers = Answers(secrets.randbelow(_NUMBERS))
        try:
            async with asyncio.timeout(seconds), self._turn:
                return await self._exchange(answers, command, arguments)
        except TimeoutError as error:
            why = f"the guest's agent did not answer {command} within {seconds:g} s"
            raise GuestAgentSilent(why, asked=answers.synchronised) from error
        except OSError as error:
            why = f"the channel to the guest's agent broke: {error}"
            raise GuestAgentSilent(why, asked=answers.synchronised) from error

    async def tell(self, command: str, arguments: Json | None = None, seconds: float = ASK_SECONDS) -> None:
        """A command that is not answered when it succeeds; an answer that comes within `seconds` is an error's."""
        try:
            await self.ask(command, arguments, seconds)
        except GuestAgentSilent as error:
            if not error.asked:
                raise

    async def _exchange(self, answers: Answers, command: str, arguments: Json | None) -> Any:
        try:
            with await self._connect() as connection:
                loop = asyncio.get_running_loop()
                await loop.sock_sendall(connection, synchronise(answers.number))
                await _until_synchronised(connection, answers)
                await loop.sock_sendall(connection, request(command, arguments))
                return await _answer(connection, answers)
        finally:
            self._release()


async def _until_synchronised(connection: socket.socket, answers: Answers) -> None:
    while not answers.synchronised:
        if answers.feed(await _read(connection)):
            raise GuestAgentError("the guest's agent answers before it is asked")


async def _answer(connection: socket.socket, answers: Answers) -> Any:
    while True:
        if found := answers.feed(await _read(connection)):
            return found[0]


async def _read(connection: socket.socket) -> bytes:
    data = await asyncio.get_running_loop().sock_recv(connection, CHUNK_BYTES)
    if not data:
        raise ConnectionResetError("it was closed")
    return data

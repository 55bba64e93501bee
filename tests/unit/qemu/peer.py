"""The other end of a QMP session, played by a test."""

import asyncio
import json
import socket
from typing import Any

GREETING: dict[str, Any] = {"QMP": {"version": {"qemu": {"major": 9, "minor": 1, "micro": 0}}, "capabilities": []}}


class Peer:
    """Says what the test tells it to, and gives out the commands as they come."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        ours.setblocking(False)
        self._socket = ours
        self._buffer = b""
        self.loop = asyncio.get_running_loop()

    async def say(self, *messages: dict[str, Any]) -> None:
        data = b"".join(json.dumps(message).encode() + b"\r\n" for message in messages)
        await self.loop.sock_sendall(self._socket, data)

    async def say_bytes(self, data: bytes) -> None:
        await self.loop.sock_sendall(self._socket, data)

    async def command(self, expected: str) -> dict[str, Any]:
        """The next command, which must be this one."""
        while b"\n" not in self._buffer:
            data = await self.loop.sock_recv(self._socket, 65536)
            assert data, f"the client left before it sent {expected}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        command = json.loads(line)
        assert command["execute"] == expected
        return command

    async def answer(self, expected: str, value: Any = None) -> dict[str, Any]:
        """Take the next command and answer it."""
        command = await self.command(expected)
        await self.say({"return": {} if value is None else value, "id": command["id"]})
        return command

    async def refuse(self, expected: str, text: str) -> None:
        command = await self.command(expected)
        await self.say({"error": {"class": "GenericError", "desc": text}, "id": command["id"]})

    async def event(self, name: str, **data: Any) -> None:
        await self.say({"event": name, "data": data})

    def hang_up(self) -> None:
        self._socket.close()

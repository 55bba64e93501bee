"""The guest agent's wire protocol: JSON lines after a delimited synchronisation. Sans-I/O.

The channel keeps what was said before: commands that nobody read and answers that nobody waited for. So each exchange
begins with the delimiter 0xFF and `guest-sync-delimited`, and all is dropped up to the delimiter and that answer
(Guest Agent Protocol Reference).
"""

from typing import Any, Final, cast

import msgspec

from anyvisor.api.meta import Json

DELIMITER: Final = b"\xff"
ANSWER_BYTES: Final = 4 * 1024 * 1024
"""The largest answer that is read; a guest that says more is not listened to."""
STALE_BYTES: Final = 16 * 1024 * 1024
"""How much of what was said before is skipped."""


class GuestAgentError(Exception):
    """The guest's agent could not be asked, or said no; the message says why."""


class GuestAgentSilent(GuestAgentError):  # noqa: N818 - a state of the guest, not a fault of ours
    """No agent answers in the guest. `asked` tells whether the command had left."""

    def __init__(self, message: str, *, asked: bool = False) -> None:
        super().__init__(message)
        self.asked = asked


def request(command: str, arguments: Json | None = None) -> bytes:
    """One command as the agent reads it."""
    message: Json = {"execute": command}
    if arguments:
        message["arguments"] = arguments
    return msgspec.json.encode(message) + b"\n"


def synchronise(number: int) -> bytes:
    """What an exchange begins with; `number` tells its answer from older ones."""
    return DELIMITER + request("guest-sync-delimited", {"id": number})


class Answers:
    """What the guest says, since the answer to `synchronise(number)`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._synchronised = False
        self._buffer = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> list[Any]:
        """Take bytes of the guest; the answers that are complete, those to older questions left out.

        Raises:
            GuestAgentError: it says no, nonsense, or too much.
        """
        self._buffer += data
        found: list[Any] = []
        while (line := self._line()) is not None:
            if self._synchronised:
                found.append(_value(line))
            else:
                self._synchronised = self._is_sync(line)
        if len(self._buffer) > ANSWER_BYTES:
            raise GuestAgentError(f"the guest's agent sends an answer of more than {ANSWER_BYTES} bytes")
        return found

    @property
    def synchronised(self) -> bool:
        """Whether what comes now answers this exchange."""
        return self._synchronised

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _is_sync(self, line: bytes) -> bool:
        self._skipped += len(line)
        if self._skipped > STALE_BYTES:
            raise GuestAgentError("the guest's agent sends old answers without end")
        _, delimiter, rest = line.rpartition(DELIMITER)
        if not delimiter:
            return False
        try:
            message = msgspec.json.decode(rest)
        except (msgspec.DecodeError, RecursionError):
            return False
        return isinstance(message, dict) and cast("Json", message).get("return") == self.number


def _value(line: bytes) -> Any:
    try:
        message = msgspec.json.decode(line.lstrip(DELIMITER), type=Json)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GuestAgentError("the guest's agent says what is no JSON object") from error
    if "return" in message:
        return message["return"]
    failure = message.get("error")
    said = cast("Json", failure).get("desc") if isinstance(failure, dict) else None
    raise GuestAgentError(f"the guest's agent refuses: {str(said or 'it does not say why')[:300]}")

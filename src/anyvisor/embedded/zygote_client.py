"""Requests to the zygote, from the processes of the same user. Calls block for about a millisecond.

`status` of the command line reads this module, so it imports little (dataclasses alone would cost as much as the rest).
"""

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MAX_MESSAGE = 64 * 1024
MAX_DESCRIPTORS = 4
_SECONDS = 5.0


class ZygoteError(Exception):
    """The zygote refused a request, or is not there."""


class LaunchRequest(NamedTuple):
    """A launcher to be forked. Descriptors stay the caller's."""

    directory: str
    uid: int
    gid: int
    log: int
    cgroup_procs: Sequence[str] = ()
    netns: int | None = None


class Launched(NamedTuple):
    """A running launcher; `pidfd` is the caller's to close."""

    pid: int
    pidfd: int


class ZygoteClient(NamedTuple):
    """Requests to the zygote at `path`."""

    path: Path

    def launch(self, request: LaunchRequest) -> Launched:
        """Fork a launcher.

        Raises:
            ZygoteError: with the cause.
        """
        message = {
            "op": "launch",
            "directory": request.directory,
            "uid": request.uid,
            "gid": request.gid,
            "cgroup_procs": list(request.cgroup_procs),
            "netns": request.netns is not None,
        }
        descriptors = [request.log] if request.netns is None else [request.log, request.netns]
        reply, received = self._call(message, descriptors)
        return Launched(reply["pid"], received[0])

    def status(self) -> dict[str, Any]:
        """The zygote's pid, and each component's name, pid, restarts and age in seconds."""
        return self._call({"op": "status"}, [])[0]

    def reload(self) -> list[str]:
        """Have the zygote look at the installed drivers again; the names of the components that it started or ended."""
        return list(self._call({"op": "reload"}, [])[0]["changed"])

    def stop(self) -> None:
        """Tell the zygote to end the components and itself. Guests go on."""
        self._call({"op": "stop"}, [])

    def _call(self, message: dict[str, Any], descriptors: list[int]) -> tuple[dict[str, Any], list[int]]:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
                connection.settimeout(_SECONDS)
                connection.connect(str(self.path))
                socket.send_fds(connection, [json.dumps(message).encode()], descriptors)
                data, received, _, _ = socket.recv_fds(connection, MAX_MESSAGE, MAX_DESCRIPTORS)
        except OSError as error:
            raise ZygoteError(f"the instance's supervisor does not answer at {self.path}: {error}") from error
        if not data:
            raise ZygoteError("the instance's supervisor refused the request")
        reply = json.loads(data)
        if "error" in reply:
            raise ZygoteError(reply["error"])
        return reply, received

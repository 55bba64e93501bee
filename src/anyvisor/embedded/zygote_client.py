"""Requests to the zygote, from the processes of the same user. Calls block for about a millisecond."""

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyvisor.embedded.zygote import MAX_DESCRIPTORS, MAX_MESSAGE

_SECONDS = 5.0


class ZygoteError(Exception):
    """The zygote refused a request, or is not there."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A launcher to be forked. Descriptors stay the caller's."""

    directory: str
    uid: int
    gid: int
    log: int
    cgroup_procs: Sequence[str] = ()
    netns: int | None = None


@dataclass(frozen=True, slots=True)
class Launched:
    """A running launcher; `pidfd` is the caller's to close."""

    pid: int
    pidfd: int


@dataclass(frozen=True, slots=True)
class ZygoteClient:
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

"""Writes down every path and socket that the agent's own code touches, by Python's audit events."""

import json
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

EVENTS = {
    **dict.fromkeys(("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"), 1),
    **dict.fromkeys(("os.chmod", "os.chown", "os.utime", "os.setxattr", "os.getxattr", "subprocess.Popen"), 1),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2),
    **dict.fromkeys(("socket.connect", "socket.bind"), 1),
}
"""Event -> how many of its arguments are places."""
OURS = ("anyvisor.agent", "anyvisor.hri")
OTHERS = "anyvisor.embedded"
"""The pod runner, which is in the same process here."""


def watch(file: Path) -> None:
    """From now on, a line for each: event, module of ours, place."""
    target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        count = EVENTS.get(event)
        if count is None:
            return
        module = _ours(sys._getframe())
        if not module:
            return
        places = arguments[1:2] if event.startswith("socket.") else arguments[:count]
        for place in places:
            if not isinstance(place, int):  # a descriptor that is open already
                os.write(target, json.dumps([event, module, _text(place)]).encode() + b"\n")

    sys.addaudithook(heard)


def _ours(frame: FrameType | None) -> str:
    """The innermost module of the agent in the stack; empty for imports, and for what others do by its functions."""
    found = ""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.startswith(("importlib", OTHERS)):
            return ""
        found = found or (name if name.startswith(OURS) else "")
        frame = frame.f_back
    return found


def _text(place: Any) -> str:
    return os.fsdecode(place) if isinstance(place, str | bytes) else str(place)

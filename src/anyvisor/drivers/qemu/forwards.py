"""Ports of a guest on QEMU's own user-mode network, opened at the host's loopback for the time of a stream.

QEMU has no QMP command for it: the monitor's `hostfwd_add` and `info usernet` are asked by `human-monitor-command`.
The port of the host is the kernel's choice, so it is read back from the list of connections.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

from anyvisor.hri.errors import NotImplementedByDriver, Refused

LOOPBACK: Final = "127.0.0.1"
PROTOCOLS: Final = ("tcp", "udp")
LIMIT: Final = 256
"""Forwards of one machine at the same time."""
_ENTRY: Final = re.compile(
    r"^\s*(TCP|UDP)\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d{1,5})\s+\S+\s+(\d{1,5})\b", re.MULTILINE
)

Monitor = Callable[[str], Awaitable[str]]
"""Runs a command of the human monitor; its output."""
Key = tuple[str, int, int]
"""Protocol, port of the host, port of the guest."""


def listed(output: str) -> set[Key]:
    """The forwards in the output of `info usernet`."""
    return {(kind.lower(), int(host), int(guest)) for kind, host, guest in _ENTRY.findall(output)}


class Forwards:
    """The open forwards of one machine."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._one_by_one = asyncio.Lock()
        self._open: set[str] = set()

    async def open(self, protocol: str, port: int) -> tuple[str, str]:
        """Open one; its id, and the address that leads to the guest's port.

        Raises:
            NotImplementedByDriver: the machine has no user-mode network.
            Refused: QEMU refused, or too many are open.
        """
        if protocol not in PROTOCOLS or not 0 < port < 1 << 16:
            raise Refused("a guest port is a number from 1 to 65535, by tcp or udp")
        if len(self._open) >= LIMIT:
            raise Refused(f"{LIMIT} ports of this machine are forwarded already; close some")
        async with self._one_by_one:
            before = listed(await self._monitor("info usernet"))
            said = (await self._monitor(f"hostfwd_add {protocol}:{LOOPBACK}:0-:{port}")).strip()
            if said:
                raise _refusal(said)
            made = [key for key in listed(await self._monitor("info usernet")) - before if key[::2] == (protocol, port)]
        if len(made) != 1:
            raise Refused("QEMU does not say at which port of the host it listens; try again")
        forward = f"{protocol}:{LOOPBACK}:{made[0][1]}"
        self._open.add(forward)
        return forward, f"{LOOPBACK}:{made[0][1]}"

    async def close(self, forward: str) -> None:
        """Close one that `open` gave out; of another, nothing."""
        if forward in self._open:
            self._open.discard(forward)
            await self._monitor(f"hostfwd_remove {forward}")


def _refusal(said: str) -> Refused | NotImplementedByDriver:
    if "not in use" in said:
        return NotImplementedByDriver("this machine has no user-mode network; connect to its own address")
    return Refused(f"QEMU did not forward the port: {said[:200]}")

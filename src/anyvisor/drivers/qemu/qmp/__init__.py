"""QMP, QEMU's control protocol: a sans-I/O core, and a thin shell over a connected socket."""

from anyvisor.drivers.qemu.qmp.client import Command, QmpClient, QmpClosed, QmpRefused, QmpTimeout
from anyvisor.drivers.qemu.qmp.protocol import Event, Failure, Greeting, Message, ProtocolError, QmpCore, Reply

__all__ = [
    "Command",
    "Event",
    "Failure",
    "Greeting",
    "Message",
    "ProtocolError",
    "QmpClient",
    "QmpClosed",
    "QmpCore",
    "QmpRefused",
    "QmpTimeout",
    "Reply",
]

"""A change of a guest that runs, in commands: the same translation as at the start, told to the monitor."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anyvisor.drivers.qemu.qmp import Command
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.hri.kit.drafts import Json

_COMMANDS: Final = {
    "blockdev": "blockdev-add",
    "device": "device_add",
    "netdev": "netdev_add",
    "object": "object-add",
}


@dataclass(slots=True)
class LiveDraft(Draft):
    """Collects commands in the place of a command line. `first_set` is the first number that no descriptor set has."""

    first_set: int = 1
    commands: list[Command] = field(default_factory=list[Command])
    sets: dict[str, int] = field(default_factory=dict[str, int])
    """Descriptor sets to be made before the commands: handle -> number."""

    named: dict[str, str] = field(default_factory=dict[str, str])
    """Descriptors to be handed over by name before the commands, each for one of them: handle -> name."""

    def json(self, name: str, value: Mapping[str, Json]) -> None:
        """One command."""
        self.commands.append((_COMMANDS[name], dict(value)))

    def descriptor(self, handle: str) -> str:
        """The name of a descriptor that is handed over; it goes to the back end that names it."""
        return self.named.setdefault(handle, f"descriptor-{len(self.named)}")

    def fdset(self, handle: str) -> str:
        """A file name that QEMU resolves to the descriptor itself."""
        number = self.sets.setdefault(handle, self.first_set + len(self.sets))
        return f"/dev/fdset/{number}"


def undo(commands: list[Command]) -> list[Command]:
    """What takes back the block nodes, back ends and objects of commands that were carried out, the last first."""
    taken: list[Command] = []
    for name, arguments in reversed(commands):
        found: Mapping[str, Any] = arguments or {}
        if name == "blockdev-add":
            taken.append(("blockdev-del", {"node-name": found["node-name"]}))
        elif name == "netdev_add":
            taken.append(("netdev_del", {"id": found["id"]}))
        elif name == "object-add":
            taken.append(("object-del", {"id": found["id"]}))
    return taken

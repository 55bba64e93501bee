"""The command line while it is being written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from anyvisor.hri.errors import InvalidRequest
from anyvisor.hri.kit import drafts
from anyvisor.hri.kit.drafts import Json
from anyvisor.hri.v1.machine_pb2 import Helper, Seed, SocketPair
from anyvisor.hri.v1.types_pb2 import Endpoint


def escaped(value: str) -> str:
    """A value inside QEMU's `key=value,...` syntax, where a comma is doubled."""
    if "\0" in value:
        raise InvalidRequest("a value for the command line contains a NUL byte")
    return value.replace(",", ",,")


@dataclass(slots=True)
class Draft(drafts.Draft):
    """Collects what the parts of a translation add, in order."""

    argv: list[str] = field(default_factory=list[str])
    working_directory: bool = False
    """Whether QEMU makes sockets in the launcher's directory."""
    env: list[str] = field(default_factory=list[str])
    """What stands in QEMU's environment."""
    seeds: list[Seed] = field(default_factory=list[Seed])
    pairs: list[SocketPair] = field(default_factory=list[SocketPair])
    helpers: list[Helper] = field(default_factory=list[Helper])
    _sets: dict[str, int] = field(default_factory=dict[str, int])

    def option(self, name: str, *values: str) -> None:
        """`-name value`."""
        self.argv += [f"-{name}", *values]

    def json(self, name: str, value: Mapping[str, Json]) -> None:
        """`-name {...}`. JSON needs no escaping, whatever a user wrote."""
        self.option(name, json.dumps(value, separators=(",", ":"), ensure_ascii=False))

    def device(
        self, device_id: str, driver: str, where: Mapping[str, Json], properties: Mapping[str, Json] | None = None
    ) -> None:
        """`-device`, with an id and a place on a bus, always. Properties that are None keep QEMU's default."""
        kept = {key: value for key, value in (properties or {}).items() if value is not None}
        self.json("device", {"driver": driver, "id": device_id, **where, **kept})

    def descriptor(self, handle: str) -> str:
        """How a back end names the descriptor."""
        return str(self.number(handle))

    def fdset(self, handle: str) -> str:
        """A file name that QEMU resolves to the descriptor itself."""
        index = self._sets.get(handle)
        if index is None:
            index = len(self._sets) + 1
            self._sets[handle] = index
            self.option("add-fd", f"fd={self.number(handle)},set={index}")
        return f"/dev/fdset/{index}"

    def served(self, endpoint: Endpoint, path: str) -> str:
        """Announce an endpoint that QEMU binds by itself, in the launcher's directory; returns its path there."""
        endpoint.vmm_path = path
        endpoint.socket = Endpoint.SOCKET_STREAM
        self.endpoints.append(endpoint)
        self.working_directory = True
        return path

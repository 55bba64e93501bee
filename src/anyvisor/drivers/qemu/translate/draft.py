"""The command line while it is being written: options, descriptor numbers, endpoints and findings."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from anyvisor.hri.errors import InvalidRequest, Refused, finding
from anyvisor.hri.v1.machine_pb2 import DescriptorSlot
from anyvisor.hri.v1.types_pb2 import DeviceState, Endpoint, Finding

FIRST_NUMBER: Final = 3
LAST_NUMBER: Final = 250
"""Bounds of the numbers that a launch plan may use for descriptors."""

Json = str | int | bool | None | list["Json"] | dict[str, "Json"]


def escaped(value: str) -> str:
    """A value inside QEMU's `key=value,...` syntax, where a comma is doubled."""
    if "\0" in value:
        raise InvalidRequest("a value for the command line contains a NUL byte")
    return value.replace(",", ",,")


@dataclass(slots=True)
class Draft:
    """Collects what the parts of a translation add, in order."""

    argv: list[str] = field(default_factory=list[str])
    slots: list[DescriptorSlot] = field(default_factory=list[DescriptorSlot])
    endpoints: list[Endpoint] = field(default_factory=list[Endpoint])
    devices: list[DeviceState] = field(default_factory=list[DeviceState])
    findings: list[Finding] = field(default_factory=list[Finding])
    """What was changed or will not be as asked, without being an error."""
    refusals: list[Finding] = field(default_factory=list[Finding])
    """What cannot be honoured: all of it, so that the user sees it at once."""
    working_directory: bool = False
    """Whether QEMU makes sockets in the launcher's directory."""
    _numbers: dict[str, int] = field(default_factory=dict[str, int])
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

    def number(self, handle: str) -> int:
        """The number under which the VMM finds the descriptor `handle`."""
        if not handle:
            raise InvalidRequest("a descriptor handle is empty")
        number = self._numbers.get(handle)
        if number is None:
            number = FIRST_NUMBER + len(self._numbers)
            if number > LAST_NUMBER:
                raise Refused(
                    f"the machine needs more than {LAST_NUMBER - FIRST_NUMBER + 1} descriptors; "
                    "take disks or network queues away",
                    findings=[finding("LIMIT_EXCEEDED", "too many descriptors", field="disks")],
                )
            self._numbers[handle] = number
            self.slots.append(DescriptorSlot(number=number, handle=handle))
        return number

    def reopened(self, handle: str) -> str:
        """A path for an option that takes no descriptor: the kernel opens the same file anew."""
        return f"/proc/self/fd/{self.number(handle)}"

    def fdset(self, handle: str) -> str:
        """A file name that QEMU resolves to the descriptor itself."""
        index = self._sets.get(handle)
        if index is None:
            index = len(self._sets) + 1
            self._sets[handle] = index
            self.option("add-fd", f"fd={self.number(handle)},set={index}")
        return f"/dev/fdset/{index}"

    def listen(self, endpoint: Endpoint) -> int:
        """Announce an endpoint that the agent binds; returns its number."""
        number = self.number(endpoint.id)
        endpoint.listen_descriptor = number
        endpoint.socket = Endpoint.SOCKET_STREAM
        self.endpoints.append(endpoint)
        return number

    def served(self, endpoint: Endpoint, path: str) -> str:
        """Announce an endpoint that QEMU binds by itself, in the launcher's directory; returns its path there."""
        endpoint.vmm_path = path
        endpoint.socket = Endpoint.SOCKET_STREAM
        self.endpoints.append(endpoint)
        self.working_directory = True
        return path

    def refuse(self, code: str, field_path: str, message: str, *, have: str = "", want: str = "") -> None:
        """Note something that cannot be honoured, and go on to find the rest."""
        self.refusals.append(finding(code, message, field=field_path, have=have, want=want))

    def note(self, code: str, field_path: str, message: str, *, have: str = "", want: str = "") -> None:
        """Tell of a change that the guest can live with."""
        self.findings.append(
            finding(code, message, field=field_path, have=have, want=want, severity="info", retry="never")
        )

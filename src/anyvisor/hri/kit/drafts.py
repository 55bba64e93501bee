"""A translation while it is being written: descriptor numbers, endpoints, devices, findings, and refusals told at once.

A driver subclasses `Draft` by what its VMM is told in (a command line, a configuration), and ends with `check`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from anyvisor.hri.errors import InvalidRequest, Refused, finding
from anyvisor.hri.v1.machine_pb2 import DescriptorSlot
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import DeviceState, Endpoint, Finding

FIRST_NUMBER: Final = 3
LAST_NUMBER: Final = 250
"""Bounds of the numbers that a launch plan may use for descriptors."""

Json = str | int | bool | None | list["Json"] | dict[str, "Json"]


@dataclass(slots=True)
class Draft:
    """Collects what the parts of a translation add, in order."""

    slots: list[DescriptorSlot] = field(default_factory=list[DescriptorSlot])
    endpoints: list[Endpoint] = field(default_factory=list[Endpoint])
    devices: list[DeviceState] = field(default_factory=list[DeviceState])
    findings: list[Finding] = field(default_factory=list[Finding])
    """What was changed or will not be as asked, without being an error."""
    refusals: list[Finding] = field(default_factory=list[Finding])
    """What cannot be honoured: all of it, so that the user sees it at once."""
    _numbers: dict[str, int] = field(default_factory=dict[str, int])

    def number(self, handle: str) -> int:
        """The number under which the VMM finds the descriptor `handle`."""
        if not handle:
            raise InvalidRequest("a descriptor handle is empty")
        number = self._numbers.get(handle)
        if number is None:
            number = FIRST_NUMBER + len(self._numbers)
            if number > LAST_NUMBER:
                raise Refused(
                    f"the machine needs more than {LAST_NUMBER - FIRST_NUMBER + 1} descriptors; take devices away",
                    findings=[finding("LIMIT_EXCEEDED", "too many descriptors", field="disks")],
                )
            self._numbers[handle] = number
            self.slots.append(DescriptorSlot(number=number, handle=handle))
        return number

    def reopened(self, handle: str) -> str:
        """A path that the VMM opens: the kernel opens the same file anew, with the VMM's own rights to it."""
        number = self.number(handle)
        for slot in self.slots:
            if slot.number == number:
                slot.reopened = True
        return f"/proc/self/fd/{number}"

    def listen(self, endpoint: Endpoint, kind: Endpoint.Socket = Endpoint.SOCKET_STREAM) -> int:
        """Announce an endpoint that the agent makes; returns its number."""
        number = self.number(endpoint.id)
        endpoint.listen_descriptor = number
        endpoint.socket = kind
        self.endpoints.append(endpoint)
        return number

    def plug(self, device_id: str, address: str) -> None:
        """Report where a device is."""
        self.devices.append(DeviceState(id=device_id, address=address, state=DeviceState.STATE_PLUGGED))

    def refuse(self, code: str, field_path: str, message: str, *, have: str = "", want: str = "") -> None:
        """Note something that cannot be honoured, and go on to find the rest."""
        self.refusals.append(finding(code, message, field=field_path, have=have, want=want))

    def note(
        self, code: str, field_path: str, message: str, *, have: str = "", want: str = "", severity: str = "info"
    ) -> None:
        """Tell of something that the guest gets otherwise than it was asked for, and can live with."""
        self.findings.append(
            finding(code, message, field=field_path, have=have, want=want, severity=severity, retry="never")
        )

    def check(self) -> None:
        """Raise Refused with all refusals, if there are any."""
        if self.refusals:
            first, more = self.refusals[0], len(self.refusals) - 1
            raise Refused(
                f"{first.field}: {first.message}" + (f" (and {more} more)" if more else ""), findings=self.refusals
            )


def check_device_ids(machine: Machine, allowed: re.Pattern[str], rule: str) -> None:
    """Raise InvalidRequest unless each device has an id of its own that the VMM takes; `rule` says `allowed` in words.

    Ids end up in command lines and configurations, and name devices in events.
    """
    ids = list(_device_ids(machine))
    for device_id in ids:
        if not allowed.fullmatch(device_id):
            raise InvalidRequest(f"device id {device_id[:80]!r} must be {rule}")
    if len(set(ids)) != len(ids):
        raise InvalidRequest("two devices of the machine have the same id; each needs one of its own")


def _device_ids(machine: Machine) -> Iterable[str]:
    for group in (machine.disks, machine.nics, machine.consoles, machine.displays, machine.devices):
        yield from (device.id for device in group)
    yield from (filesystem.id for filesystem in machine.filesystems)

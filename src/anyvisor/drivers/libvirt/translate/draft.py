"""The domain while it is being written."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from anyvisor.hri.errors import InvalidRequest
from anyvisor.hri.kit import drafts
from anyvisor.hri.v1.types_pb2 import Endpoint

_UNSAYABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no character for."""


def element(tag: str, *children: ET.Element, text: str = "", **attributes: str | int) -> ET.Element:
    """One element; attributes that are empty strings are left out, a trailing underscore is taken from names.

    Raises:
        InvalidRequest: a character that XML has no way to say.
    """
    made = ET.Element(tag, {key.rstrip("_"): _sayable(str(value)) for key, value in attributes.items() if value != ""})
    made.text = _sayable(text) if text else None
    made.extend(children)
    return made


def _sayable(value: str) -> str:
    if _UNSAYABLE.search(value):
        raise InvalidRequest("a value contains a control character, and a domain's XML cannot carry it")
    return value


def pci(bus: int, slot: int = 0, function: int = 0, *, more: bool = False) -> ET.Element:
    """The place of a device on PCI; `more`: further functions follow in its slot."""
    return element(
        "address",
        type="pci",
        domain="0x0000",
        bus=f"{bus:#04x}",
        slot=f"{slot:#04x}",
        function=f"{function:#x}",
        multifunction="on" if more else "",
    )


@dataclass(slots=True)
class Draft(drafts.Draft):
    """Collects what the parts of a translation add, in order."""

    elements: list[ET.Element] = field(default_factory=list[ET.Element])
    """Children of <domain>, devices apart."""
    hardware: list[ET.Element] = field(default_factory=list[ET.Element])
    """Children of <devices>."""
    groups: dict[str, str] = field(default_factory=dict[str, str])
    """Descriptor groups that the domain's disks name -> handle."""
    kernel_files: dict[str, str] = field(default_factory=dict[str, str])
    """Names of files that the VMM opens by path -> handle."""

    def add(self, tag: str, *children: ET.Element, text: str = "", **attributes: str | int) -> None:
        """A child of <domain>."""
        self.elements.append(element(tag, *children, text=text, **attributes))

    def device(self, tag: str, *children: ET.Element, **attributes: str | int) -> None:
        """A child of <devices>."""
        self.hardware.append(element(tag, *children, text="", **attributes))

    def group(self, handle: str) -> str:
        """The descriptor group by which a disk's source is the descriptor `handle`."""
        for group, known in self.groups.items():
            if known == handle:
                return group
        group = f"v{len(self.groups)}"
        self.groups[group] = handle
        return group

    def served(self, endpoint: Endpoint) -> None:
        """Announce an endpoint that this driver itself serves."""
        self.listen(endpoint)

    @property
    def handles(self) -> Iterator[str]:
        """What the driver wants with Start."""
        yield from self.groups.values()
        yield from self.kernel_files.values()
        yield from (endpoint.id for endpoint in self.endpoints)

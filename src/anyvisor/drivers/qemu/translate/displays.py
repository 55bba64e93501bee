"""Displays: a graphics card each, seen over VNC on a socket that QEMU makes in the launcher's directory.

QEMU listens there itself, as its VNC server takes no listening descriptor (seen with QEMU 7.2).
"""

from collections.abc import Sequence
from typing import Final

from anyvisor.drivers.qemu.translate import addresses
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.hri.v1.machine_spec_pb2 import Display
from anyvisor.hri.v1.types_pb2 import Endpoint

DEFAULT_MODEL: Final = "vga"
FIRST: Final = {
    "vga": "VGA",
    "virtio": "virtio-vga",
    "bochs": "bochs-display",
    "cirrus": "cirrus-vga",
    "ramfb": "ramfb",
}
"""QEMU's device for the first display, by model."""
FURTHER: Final = {"vga": "secondary-vga", "virtio": "virtio-gpu-pci", "bochs": "bochs-display"}
"""The same for further ones: only one card can own the legacy VGA registers, and only one can be ramfb."""
DEVICES: Final = tuple(sorted({*FIRST.values(), *FURTHER.values()}))
"""What a binary is asked for: distributions pack some of them apart."""
_PLACES: Final = ("display", "display1", "display2", "display3")
RFB_VERSION: Final = "3.8"


def add_displays(draft: Draft, displays: Sequence[Display], host: Host) -> None:
    """All displays of the machine."""
    for index, display in enumerate(displays):
        path = f"displays[{index}]"
        if index == len(_PLACES):
            draft.refuse("LIMIT_EXCEEDED", path, f"a machine has at most {len(_PLACES)} displays")
            return
        driver = _driver(draft, display, host, path, first=index == 0)
        if display.heads > 1:
            draft.refuse(
                "CAP_NO", f"{path}.heads", "a display has one head; ask for more displays", want=str(display.heads)
            )
        if driver:
            _add_display(draft, display.id, driver, _PLACES[index])


def _driver(draft: Draft, display: Display, host: Host, path: str, *, first: bool) -> str:
    """QEMU's device, or empty when it is refused."""
    known = FIRST if first else FURTHER
    served = [model for model, driver in known.items() if driver in host.displays]
    model = display.model or DEFAULT_MODEL
    if model in served:
        return known[model]
    why = "as a further display" if model in FIRST and model not in known else "with the QEMU of this node"
    draft.refuse(
        "VALUE_NOT_IN_SET",
        f"{path}.model",
        f"there is no graphics card {model[:40]!r} {why}; use one of: {', '.join(served) or 'none'}",
        have=", ".join(served),
        want=model[:40],
    )
    return ""


def _add_display(draft: Draft, display_id: str, driver: str, place: str) -> None:
    device = f"display-{display_id}"
    where = {} if driver == "ramfb" else addresses.fixed(place)
    draft.device(device, driver, where)
    endpoint = Endpoint(
        id=f"display/{display_id}",
        purpose=Endpoint.PURPOSE_DISPLAY,
        protocol="rfb",
        protocol_version=RFB_VERSION,
        device_id=display_id,
    )
    socket = draft.served(endpoint, f"{device}.sock")
    draft.option("vnc", f"unix:{socket},id=vnc-{display_id},display={device},head=0")

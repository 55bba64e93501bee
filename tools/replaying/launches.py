"""The plan that replays of launcher pods stand on: one class that runs everything on the kernel's virtualization."""

from anyvisor.api.meta import Json
from anyvisor.api.quantity import Quantity, parse_quantity
from anyvisor.controller.launch import Launch

IMAGE = "virt-launcher:v1"
OVERHEAD = 96 << 20
"""Bytes; any other value must lead to the same comparison, since overhead is the driver's and taken off."""


def launch(settings_emulation: bool) -> Launch:
    """The launch of any instance."""
    devices = {} if settings_emulation else {"devices.kubevirt.io/kvm": 1}
    return Launch(image=IMAGE, overhead_bytes=OVERHEAD, devices=devices, emulation=settings_emulation)


def memory_without_overhead(pod: Json, resources: Json) -> Json:
    """Requests and limits with the overhead taken off memory: what is left is the API's rule."""

    overhead = int(pod["metadata"].get("annotations", {}).get("kubevirt.io/memory-overhead-bytes", "0"))
    result: Json = {}
    for kind, amounts in resources.items():
        if kind not in {"requests", "limits"}:
            result[kind] = amounts
            continue
        result[kind] = dict(amounts)
        if "memory" in amounts:
            rest = parse_quantity(amounts["memory"]) - Quantity.of_bytes(overhead)
            result[kind]["memory"] = str(rest)
    return result

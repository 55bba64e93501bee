"""The plan that replays of launcher pods stand on: one class that runs everything on the kernel's virtualization."""

from anyvisor.api.meta import Json, object_at
from anyvisor.api.quantity import Quantity, parse_quantity
from anyvisor.controller.launch import Launch

IMAGE = "virt-launcher:v1"
OVERHEAD = 96 << 20
"""Bytes; any other value must lead to the same comparison, since overhead is the driver's and taken off."""


def launch(settings_emulation: bool) -> Launch:
    """The launch of any instance."""
    devices = {} if settings_emulation else {"devices.kubevirt.io/kvm": 1}
    return Launch(image=IMAGE, overhead_bytes=OVERHEAD, devices=devices, emulation=settings_emulation)


def memory_without_overhead(pod: Json, resources: Json, vmi: Json) -> Json:
    """Requests and limits with the overhead taken off memory: what is left is the API's rule.

    A limit that a quota makes is a multiple of the whole request, so it counts as that multiple. Where the pod
    does not tell its overhead, only that it asks for memory counts; where the guest is to pay for it, it is not in.
    """
    asked = object_at(vmi, "spec", "domain", "resources")
    told = pod["metadata"].get("annotations", {}).get("kubevirt.io/memory-overhead-bytes")
    told = "0" if told and asked.get("overcommitGuestOverhead") is True else told
    result: Json = {kind: dict(amounts) for kind, amounts in resources.items() if isinstance(amounts, dict)}
    result |= {kind: amounts for kind, amounts in resources.items() if not isinstance(amounts, dict)}
    request = result.get("requests", {}).get("memory")
    limit = result.get("limits", {}).get("memory")
    for kind, amount in (("requests", request), ("limits", limit)):
        if amount is None:
            continue
        rest = parse_quantity(amount) - Quantity.of_bytes(int(told or 0))
        result[kind]["memory"] = str(rest) if told else "some"
    if request and limit:
        multiple = parse_quantity(limit).exact / parse_quantity(request).exact
        if multiple.denominator == 1 or "memory" not in object_at(asked, "limits"):
            result["limits"]["memory"] = f"x{round(float(multiple), 2)}"
    return result

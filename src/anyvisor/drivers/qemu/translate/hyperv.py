"""Hyper-V's enlightenments, which let Windows know that it is a guest. KVM has them; software emulation has none."""

import re
from typing import Final

from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_KVM, Accelerator

FLAGS: Final = {
    "evmcs": "hv-evmcs",
    "frequencies": "hv-frequencies",
    "ipi": "hv-ipi",
    "reenlightenment": "hv-reenlightenment",
    "relaxed": "hv-relaxed",
    "reset": "hv-reset",
    "runtime": "hv-runtime",
    "synic": "hv-synic",
    "synictimer": "hv-stimer",
    "synictimer.direct": "hv-stimer-direct",
    "tlbflush": "hv-tlbflush",
    "tlbflush.direct": "hv-tlbflush-direct",
    "tlbflush.extended": "hv-tlbflush-ext",
    "vapic": "hv-vapic",
    "vpindex": "hv-vpindex",
}
NEWER: Final = frozenset({"tlbflush.direct", "tlbflush.extended"})
"""Not in QEMU 7.2."""
SPINLOCKS: Final = "8191"
"""How often a guest tries before it yields, where the machine does not say."""
_VENDOR: Final = re.compile(r"[A-Za-z0-9 _.-]{1,12}")


def cpu_flags(draft: Draft, machine: Machine, accelerator: Accelerator) -> list[str]:
    """What the CPU is told, in the order of the names."""
    wanted = {name: value for name, value in machine.features.hyperv.items() if value != "off"}
    flags = [flag for name in sorted(wanted) if (flag := _flag(draft, name, wanted[name]))]
    if wanted and accelerator != ACCELERATOR_KVM:
        text = "software emulation has no enlightenments of Hyper-V; the guest does without"
        draft.note("IGNORED", "features.hyperv", text, want=", ".join(sorted(wanted)), severity="warn")
        return []
    return flags


def _flag(draft: Draft, name: str, value: str) -> str:
    path = f"features.hyperv[{name[:40]}]"
    if name in NEWER:
        draft.note("IGNORED", path, "this QEMU does not have it; the guest does without", want=name, severity="warn")
        return ""
    if name == "spinlocks" and (value == "on" or value.isdecimal()):
        return f"hv-spinlocks={int(SPINLOCKS if value == 'on' else value):#x}"
    if name == "vendorid" and _VENDOR.fullmatch(value):
        return f"hv-vendor-id={value}"
    if name in FLAGS and value == "on":
        return f"{FLAGS[name]}=on"
    draft.refuse("VALUE_NOT_IN_SET", path, f"{name[:40]!r} with value {value[:40]!r} is not known", want=value[:40])
    return ""

"""Network interfaces: taps by descriptor, added to the machine before it boots or while it runs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anyvisor.hri.kit.drafts import Draft, Json
from anyvisor.hri.v1.machine_spec_pb2 import Nic

_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


@dataclass(frozen=True, slots=True)
class NicRequest:
    """One `vm.add-net`: the config, and the handles of the descriptors that travel beside it."""

    config: dict[str, Json]
    handles: Sequence[str]


def nic_request(draft: Draft, nic: Nic, path: str, slot: int, vcpus: int) -> NicRequest | None:
    """The request, or None when the draft has refusals for the interface.

    MTU and link state stand on the tap: the guest's MTU is read from it, and setting it would need a privilege that
    the VMM does not have.
    """
    before = len(draft.refusals)
    if nic.model not in (Nic.MODEL_UNSPECIFIED, Nic.MODEL_VIRTIO):
        model = Nic.Model.Name(nic.model).removeprefix("MODEL_").lower()
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.model", f"there is no {model}; use virtio", have="virtio", want=model)
    if not _MAC.fullmatch(nic.mac.lower()):
        draft.refuse("VALUE_INVALID", f"{path}.mac", "a MAC address has the form aa:bb:cc:dd:ee:ff", want=nic.mac)
    backend = nic.WhichOneof("backend")
    if backend != "tap":
        draft.refuse("CAP_NO", path if backend is None else f"{path}.{backend}", "only taps are supported", have="tap")
    pairs = len(nic.tap.handles)
    if backend == "tap" and not 1 <= pairs <= vcpus:
        draft.refuse(
            "LIMIT_EXCEEDED", f"{path}.tap.handles", "an interface has one queue pair per vCPU at most", have=str(vcpus)
        )
    if len(draft.refusals) != before:
        return None
    if nic.tap.vhost_handles:
        draft.note("HANDLE_UNUSED", f"{path}.tap.vhost_handles", "the VMM moves the packets itself, without vhost-net")
    config: dict[str, Json] = {
        "id": nic.id,
        "mac": nic.mac.lower(),
        "num_queues": 2 * pairs,
        "pci_segment": 0,
        "pci_device_id": slot,
    }
    return NicRequest(config, list(nic.tap.handles))

"""Guest memory: what the guest begins with, and what may come while it runs.

More memory comes by one virtio-mem device that is there from the start and empty: the guest's driver takes blocks of it
as the host asks, and gives them back when it can.
"""

from typing import Final

from anyvisor.drivers.qemu.translate import addresses
from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.hri.kit import board
from anyvisor.hri.kit.drafts import Json
from anyvisor.hri.v1.machine_spec_pb2 import Machine

BLOCK_BYTES: Final = 2 << 20
"""What the guest takes and gives at once, at least."""
MORE: Final = "memory-more"
"""Id of the device that more memory comes by."""


def grows(machine: Machine) -> bool:
    """Whether memory may come while the guest runs."""
    return machine.memory.max_bytes > machine.memory.size_bytes


def add_backend(draft: Draft, machine: Machine, host: Host) -> list[str]:
    """Memory that is more than anonymous: shared with others, or of huge pages, taken at once or not at all."""
    memory = machine.memory
    if not memory.shared and not memory.page_bytes:
        return []
    backend: dict[str, Json] = {"qom-type": "memory-backend-memfd", "id": "memory", "size": memory.size_bytes}
    backend["share"] = memory.shared
    if memory.page_bytes:
        _check_pages(draft, machine, host)
        backend |= {"hugetlb": True, "hugetlbsize": memory.page_bytes, "prealloc": True}
    draft.json("object", backend)
    return ["memory-backend=memory"]


def _check_pages(draft: Draft, machine: Machine, host: Host) -> None:
    size, page = machine.memory.size_bytes, machine.memory.page_bytes
    if page not in host.huge_page_bytes:
        draft.refuse(
            "VALUE_UNAVAILABLE",
            "memory.page_bytes",
            f"this node has no huge pages of {page >> 10} KiB; reserve some: sysctl vm.nr_hugepages",
            have=", ".join(str(each) for each in sorted(host.huge_page_bytes)),
            want=str(page),
        )
    elif size % page:
        draft.refuse("VALUE_INVALID", "memory.size_bytes", "guest memory must be a multiple of the size of its pages")


def add_memory(draft: Draft, machine: Machine) -> None:
    """How much, and the device for more."""
    size = board.memory_bytes(draft, machine.memory.size_bytes)
    draft.option("m", f"size={size}B" + (f",maxmem={machine.memory.max_bytes}B" if grows(machine) else ""))
    if grows(machine):
        _add_more(draft, machine)


def _add_more(draft: Draft, machine: Machine) -> None:
    """The empty device, and what will be behind it: taken from the host as the guest uses it."""
    memory = machine.memory
    block = max(BLOCK_BYTES, memory.page_bytes)
    size = memory.max_bytes - memory.size_bytes
    if size % block:
        message = f"memory is added in steps of {block >> 20} MiB; make the difference to memory.size_bytes a multiple"
        draft.refuse("VALUE_INVALID", "memory.max_bytes", message, have=str(size))
        return
    backend: dict[str, Json] = {"qom-type": "memory-backend-ram", "id": f"{MORE}-backend", "size": size}
    backend["reserve"] = False
    if memory.shared or memory.page_bytes:
        backend |= {"qom-type": "memory-backend-memfd", "share": memory.shared}
    if memory.page_bytes:
        backend |= {"hugetlb": True, "hugetlbsize": memory.page_bytes}
    draft.json("object", backend)
    properties: dict[str, Json] = {"memdev": f"{MORE}-backend", "block-size": block, "requested-size": 0}
    if memory.page_bytes:
        properties["prealloc"] = True  # a guest that used a huge page which the node lacks would be killed
    draft.device(MORE, "virtio-mem-pci", addresses.fixed("memory"), properties)

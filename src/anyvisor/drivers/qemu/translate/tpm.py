"""A TPM 2.0: an emulator of its own process, connected to QEMU by a socket pair and to its state by a descriptor.

The emulator ends when QEMU does. Each change of its state is written before the guest has its answer.
"""

from typing import Final

from anyvisor.drivers.qemu.translate.draft import Draft
from anyvisor.drivers.qemu.translate.host import Host
from anyvisor.hri.v1.machine_pb2 import DescriptorSlot, Helper, Seed, SocketPair
from anyvisor.hri.v1.machine_spec_pb2 import Device

DEVICES: Final = {"": "tpm-crb", "crb": "tpm-crb", "tis": "tpm-tis"}
INSTALL: Final = "apt-get install swtpm"
STATE: Final = "tpm/state"
"""Handle of a state that is not kept."""
OURS: Final = "tpm/vmm"
THEIRS: Final = "tpm/emulator"
_CONTROL_NUMBER: Final = 3
_STATE_NUMBER: Final = 4


def add_tpm(draft: Draft, device: Device, host: Host, path: str) -> None:
    """The device, and the helper behind it."""
    driver = DEVICES.get(device.tpm.model)
    if driver is None:
        have, want = "crb, tis", device.tpm.model[:40]
        draft.refuse("VALUE_NOT_IN_SET", f"{path}.model", "use crb or tis", have=have, want=want)
        return
    if not host.tpm:
        draft.refuse("HELPER_MISSING", path, f"the TPM emulator is not installed on this node: {INSTALL}")
        return
    state = device.tpm.handle or STATE
    draft.seeds.append(Seed(handle=state))
    draft.pairs.append(SocketPair(first=OURS, second=THEIRS))
    draft.option("chardev", f"socket,id=tpm,fd={draft.number(OURS)}")
    draft.option("tpmdev", "emulator,id=tpm,chardev=tpm")
    draft.device(f"device-{device.id}", driver, {}, {"tpmdev": "tpm"})
    draft.helpers.append(_emulator(host, state))


def _emulator(host: Host, state: str) -> Helper:
    """A guest whose TPM is lost can still be shut down by its user; QEMU cannot connect to a second emulator."""
    return Helper(
        name="tpm",
        argv=[
            *(host.tpm, "socket", "--tpm2", "--terminate"),
            *("--tpmstate", f"backend-uri=file:///proc/self/fd/{_STATE_NUMBER}"),
            *("--ctrl", f"type=unixio,clientfd={_CONTROL_NUMBER}"),
        ],
        descriptors=[
            DescriptorSlot(number=_CONTROL_NUMBER, handle=THEIRS),
            DescriptorSlot(number=_STATE_NUMBER, handle=state, reopened=True),
        ],
        on_exit=Helper.ON_EXIT_IGNORE,
    )

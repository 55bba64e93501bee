"""What a translation must know of the node, found beforehand by the driver's probes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """Facts of one Cloud Hypervisor binary on one node."""

    binary: str = "/usr/bin/cloud-hypervisor"
    """Absolute path in the launcher."""
    firmware: str = ""
    """Absolute path of a UEFI firmware in the launcher; empty = there is none."""
    kvm_opens: bool = True
    kvm_message: str = ""
    """Why /dev/kvm cannot be opened, or what is wrong with the one that can."""
    kvm_runs: bool = True
    """Whether a guest that does what kernels do ran to its end."""
    landlock: bool = False
    """Whether the kernel can keep the VMM to the machine's own files."""

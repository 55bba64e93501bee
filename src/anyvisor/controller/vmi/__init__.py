"""The VirtualMachineInstance: one launcher pod on one node, until the guest has ended."""

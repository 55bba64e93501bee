"""The VirtualMachine: keeps, starts and stops the one VirtualMachineInstance that carries its name."""

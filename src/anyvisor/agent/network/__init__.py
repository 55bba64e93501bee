"""A machine's network: address translation behind the pod's address where there is a network namespace of its own,
the VMM's user-mode network where there is none."""

from anyvisor.agent.network.attach import MachineNetwork, attach, detach

__all__ = ["MachineNetwork", "attach", "detach"]

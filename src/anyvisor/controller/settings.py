"""What the KubeVirt configuration object says, read with KubeVirt's defaults."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from anyvisor.api.meta import Json, list_at, object_at, text_at

GATES_ON_BY_DEFAULT: Final = frozenset(
    {
        "ExternalNetResourceInjection",
        "GPUsWithDRA",
        "HostDevicesWithDRA",
        "ImageVolume",
        "VmiMemoryOverheadReport",
    }
)
"""Those that this room asks for, of the gates that are on unless they are disabled."""


def empty_config() -> Json:
    """A configuration that sets nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class Settings:
    """`spec.configuration` of the KubeVirt object; an empty one means all defaults."""

    config: Json = field(default_factory=empty_config)

    def gate(self, name: str) -> bool:
        """Whether a feature gate is on."""
        developer = object_at(self.config, "developerConfiguration")
        if name in list_at(developer, "featureGates"):
            return True
        return name in GATES_ON_BY_DEFAULT and name not in list_at(developer, "disabledFeatureGates")

    def developer(self, name: str) -> Any:
        """A value of `developerConfiguration`, or None."""
        return object_at(self.config, "developerConfiguration").get(name)

    @property
    def live_update(self) -> bool:
        """Whether changes of a running VM are applied where possible, instead of waiting for a restart."""
        return text_at(self.config, "vmRolloutStrategy") != "Stage"

    @property
    def overhead_ratio(self) -> str:
        """`additionalGuestMemoryOverheadRatio` as written; empty when unset."""
        return text_at(self.config, "additionalGuestMemoryOverheadRatio")

    @property
    def state_storage_class(self) -> str:
        """The storage class of claims for persistent firmware and TPM state; empty = the default one."""
        return text_at(self.config, "vmStateStorageClass")

    @property
    def minimum_tsc_frequency(self) -> int | None:
        """Hertz that every node's time stamp counter can be scaled to, where an admin says so."""
        value = self.developer("minimumClusterTSCFrequency")
        return value if isinstance(value, int) else None

    @property
    def cpu_allocation_ratio(self) -> int:
        """Virtual CPUs that share one CPU's worth of request."""
        value = self.developer("cpuAllocationRatio")
        return value if isinstance(value, int) and value > 0 else 10

    @property
    def memory_overcommit(self) -> Fraction:
        """Percent of guest memory per requested memory."""
        value = self.developer("memoryOvercommit")
        return Fraction(value if isinstance(value, int) and value > 0 else 100, 100)

    @property
    def emulation(self) -> bool:
        """Whether machines run without the kernel's virtualization."""
        return self.developer("useEmulation") is True

    @property
    def network_bindings(self) -> Json:
        """The registered network binding plugins by name."""
        return object_at(self.config, "network", "binding")

"""What the rules need of the cluster: the configuration object over the API's built-in values."""

from dataclasses import dataclass, field
from typing import Any

from anyvisor.admission import quantity
from anyvisor.admission.gates import enabled_gates
from anyvisor.admission.result import User
from anyvisor.admission.values import Obj, integer, mapping, strings, text

MACHINE_TYPES = {"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}
EMULATED_MACHINES = {"amd64": ("q35*", "pc-q35*"), "arm64": ("virt*",), "s390x": ("s390-ccw-virtio*",)}
ARCHITECTURES = tuple(MACHINE_TYPES)

_BUILT_IN = "built-in default"
_CONFIGURED = "cluster configuration "
_MAX_HOTPLUG_RATIO = 4
_QGS_SOCKET = "/var/run/tdx-qgs/qgs.socket"
_CPU_REQUEST_MILLI = 100
_OWN_COMPONENTS = ("system:anyvisor:controller", "system:anyvisor:gateway", "system:anyvisor:scheduler")
_OWN_AGENT = "system:anyvisor:agent:"
_CONTROLLER_ACCOUNT = "kubevirt-controller"
_AGENT_ACCOUNT = "kubevirt-handler"
_ACCOUNTS = (
    "kubevirt-apiserver",
    _CONTROLLER_ACCOUNT,
    _AGENT_ACCOUNT,
    "kubevirt-synchronization-controller",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster-wide value and what gave it."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The effective settings. Build it with `of`, once per version of the configuration object."""

    architecture: str
    configuration: Obj
    annotations: Obj
    component_namespace: str
    gates: frozenset[str] = field(default=frozenset())
    listed_gates: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        configuration: Obj | None = None,
        architecture: str = "amd64",
        annotations: Obj | None = None,
        component_namespace: str = "kubevirt",
    ) -> "ClusterConfig":
        """The effective configuration: `configuration` is the KubeVirt object's `spec.configuration`.

        A configuration that as a whole cannot be used counts as empty, so that one wrong value never stops a cluster;
        the object's own admission is where it is refused.
        """
        usable = configuration if configuration is not None and is_usable(configuration) else {}
        developer = mapping(usable.get("developerConfiguration"))
        return cls(
            architecture=architecture,
            configuration=usable,
            annotations=annotations or {},
            component_namespace=component_namespace,
            gates=enabled_gates(developer),
            listed_gates=tuple(strings(developer.get("featureGates"))),
        )

    def on(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return gate in self.gates

    def machine_type(self, architecture: str) -> Setting:
        """The machine type for guests that name none."""
        if written := text(self.configuration.get("machineType")):
            return Setting(written, _CONFIGURED + "machineType")
        arch = architecture if architecture in MACHINE_TYPES else "amd64"
        if written := text(self._architecture(arch).get("machineType")):
            return Setting(written, f"{_CONFIGURED}architectureConfiguration.{arch}.machineType")
        return Setting(MACHINE_TYPES[arch], f"{_BUILT_IN} for {arch}")

    def emulated_machines(self, architecture: str) -> tuple[str, ...]:
        """The patterns (globs) of machine types that may be used."""
        if self.configuration.get("emulatedMachines"):
            return tuple(strings(self.configuration["emulatedMachines"]))
        arch = architecture if architecture in EMULATED_MACHINES else "amd64"
        return tuple(strings(self._architecture(arch).get("emulatedMachines"))) or EMULATED_MACHINES[arch]

    @property
    def cpu_model(self) -> Setting:
        """The CPU model for guests that name none."""
        if written := text(self.configuration.get("cpuModel")):
            return Setting(written, _CONFIGURED + "cpuModel")
        return Setting("host-model", _BUILT_IN)

    @property
    def cpu_request(self) -> Setting | None:
        """The CPU request for guests that state none; the built-in 100m is left to the launcher pod."""
        written = self.configuration.get("cpuRequest")
        if quantity.parse(written) is None or quantity.milli(written) == _CPU_REQUEST_MILLI:
            return None
        return Setting(written, _CONFIGURED + "cpuRequest")

    @property
    def eviction_strategy(self) -> Setting:
        """What an eviction does to guests that do not say."""
        if written := text(self.configuration.get("evictionStrategy")):
            return Setting(written, _CONFIGURED + "evictionStrategy")
        return Setting("None", _BUILT_IN)

    @property
    def network_interface(self) -> Setting:
        """The binding of the interface that guests without any network get."""
        if written := text(self._network.get("defaultNetworkInterface")):
            return Setting(written, _CONFIGURED + "network.defaultNetworkInterface")
        return Setting("bridge", _BUILT_IN)

    @property
    def bridge_on_pod_network(self) -> bool:
        """Whether a bridge may be bound to the pod network."""
        return self._network.get("permitBridgeInterfaceOnPodNetwork") is not False

    @property
    def live_update(self) -> bool:
        """Whether changes of a running VM are applied live (the `vmRolloutStrategy`)."""
        return text(self.configuration.get("vmRolloutStrategy")) in ("", "LiveUpdate")

    @property
    def max_sockets(self) -> int:
        """The cluster's limit for CPU sockets to grow to; 0 = by ratio."""
        return integer(self._live_update.get("maxCpuSockets"))

    @property
    def max_guest(self) -> Any:
        """The cluster's limit for guest memory to grow to (a quantity); None = by ratio."""
        return self._live_update.get("maxGuest")

    @property
    def max_hotplug_ratio(self) -> int:
        """How many times its boot size a guest may grow to when nothing else is said."""
        return integer(self._live_update.get("maxHotplugRatio")) or _MAX_HOTPLUG_RATIO

    @property
    def quote_socket(self) -> str:
        """The socket of the TDX quote generation service; empty = none."""
        attestation = mapping(
            mapping(mapping(self.configuration.get("confidentialCompute")).get("tdx")).get("attestation")
        )
        written = attestation.get("qgsSocketPath")
        return _QGS_SOCKET if written is None else text(written)

    @property
    def persistent_reservation(self) -> bool:
        """Whether SCSI reservations are switched on: by their own setting, else by a listed gate."""
        switch = mapping(self.configuration.get("persistentReservationConfiguration")).get("enabled")
        return switch is True or (switch is None and "PersistentReservation" in self.listed_gates)

    @property
    def permitted_pci_devices(self) -> Any:
        """The PCI devices that guests may use, as listed."""
        return mapping(self.configuration.get("permittedHostDevices")).get("pciHostDevices")

    def is_component(self, user: User) -> bool:
        """Whether the user is one of the control plane's own identities."""
        name = user.name
        if name in _OWN_COMPONENTS or name.startswith(_OWN_AGENT):
            return True
        return self._account(name) in _ACCOUNTS

    def is_controller(self, user: User) -> bool:
        """Whether the user is the controller."""
        return user.name == _OWN_COMPONENTS[0] or self._account(user.name) == _CONTROLLER_ACCOUNT

    def is_agent(self, user: User) -> bool:
        """Whether the user is a node's agent."""
        return user.name.startswith(_OWN_AGENT) or self._account(user.name) == _AGENT_ACCOUNT

    def agent_node(self, user: User) -> str:
        """The node that an agent's identity is bound to; empty when it is bound to none."""
        if user.name.startswith(_OWN_AGENT):
            return user.name.removeprefix(_OWN_AGENT)
        nodes = user.extra.get("authentication.kubernetes.io/node-name") or ("",)
        return nodes[0]

    def _account(self, user_name: str) -> str:
        prefix = f"system:serviceaccount:{self.component_namespace}:"
        return user_name.removeprefix(prefix) if user_name.startswith(prefix) else ""

    def _architecture(self, architecture: str) -> Obj:
        return mapping(mapping(self.configuration.get("architectureConfiguration")).get(architecture))

    @property
    def _network(self) -> Obj:
        return mapping(self.configuration.get("network"))

    @property
    def _live_update(self) -> Obj:
        return mapping(self.configuration.get("liveUpdateConfiguration"))


def is_usable(configuration: Obj) -> bool:
    """Whether a configuration can be used at all: values without which no default could be chosen."""
    developer = mapping(configuration.get("developerConfiguration"))
    tolerance = integer(developer.get("pvcTolerateLessSpaceUpToPercent"))
    return (
        text(configuration.get("imagePullPolicy")) in ("", "Always", "Never", "IfNotPresent")
        and integer(developer.get("memoryOvercommit")) >= 0
        and integer(developer.get("cpuAllocationRatio")) >= 0
        and 0 <= tolerance <= 100
        and text(mapping(configuration.get("network")).get("defaultNetworkInterface"))
        in ("", "bridge", "masquerade", "slirp")
    )

"""`anyvisor.io/v1alpha1`: which drivers are installed, how an admin offers them, what each node can do."""

from typing import Annotated, Any

from anyvisor.api.meta import Condition, Model, ObjectMeta
from anyvisor.api.wire import Int32, QuantityValue, Schema


class HypervisorDriverSpec(Model, frozen=True, kw_only=True):
    """What an installed driver says of itself."""

    manifest: dict[str, Any]
    """The driver's manifest, as it ships it: capabilities, overhead model, pod shape, parameter schema."""
    evidence: tuple[dict[str, Any], ...] | None = None
    """Results of the conformance program: what they prove of this manifest counts as supported, the rest as claimed."""
    image: str | None = None
    """The launcher image of this installation, in place of those that the manifest names."""


class HypervisorDriver(Model, frozen=True, kw_only=True):
    """An installed driver: the adapter that lets machines run on one kind of VMM."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: HypervisorDriverSpec


class ClassPolicy(Model, frozen=True, kw_only=True):
    """Who may use a class, and what it may offer."""

    namespaces: tuple[str, ...] | None = None
    """The namespaces whose machines may use the class; all when absent."""
    allow_experimental: bool | None = None
    """Whether capabilities that the driver calls experimental count as present."""
    allow_emulation: bool | None = None
    """Whether machines may run without hardware virtualization, which is many times slower."""


class ClassOverhead(Model, frozen=True, kw_only=True):
    """Memory that machines of a class need beside the guest's, in place of the driver's own model."""

    fixed: QuantityValue
    """Memory for a machine with one virtual CPU and no devices."""
    guest_memory_ratio: str | None = None
    """Share of the guest's memory: a decimal number or a fraction, `1/512`."""
    per_vcpu: QuantityValue | None = None
    per_io_thread: QuantityValue | None = None
    per_disk: QuantityValue | None = None
    per_nic: QuantityValue | None = None
    per_display: QuantityValue | None = None
    per_filesystem: QuantityValue | None = None
    firmware: dict[str, QuantityValue] | None = None
    """By kind: `bios`, `uefi` or `kernel`."""
    architecture: dict[str, QuantityValue] | None = None
    """By the guest's architecture."""
    tpm: QuantityValue | None = None
    vfio: QuantityValue | None = None
    """Once, when any device of the host is passed through."""
    confidential: QuantityValue | None = None
    dedicated_cpu: QuantityValue | None = None
    margin: str | None = None
    """Share of the sum that is added at the end: a decimal number or a fraction."""


class HypervisorClassSpec(Model, frozen=True, kw_only=True):
    """How a driver is offered."""

    driver: str
    """The name of the HypervisorDriver that runs the machines of this class."""
    default: bool | None = None
    """Whether machines that name no class get this one; at most one class may say so."""
    parameters: dict[str, Any] | None = None
    """Values for the parameters that the driver's manifest describes."""
    defaults: dict[str, Any] | None = None
    """Parts of a VirtualMachineInstanceSpec that machines of this class get where their own say nothing."""
    weight: Int32 | None = None
    """Preference among classes that fit, for machines that leave the choice to the planner; higher wins."""
    node_selector: dict[str, str] | None = None
    """Labels that a node must have to run machines of this class."""
    overhead: ClassOverhead | None = None
    """Memory overhead to count, in place of the driver's own model."""
    policy: ClassPolicy | None = None
    """Limits on the use of the class."""


class HypervisorClass(Model, frozen=True, kw_only=True):
    """What a machine names to say where it runs: a driver with an admin's parameters and limits."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: HypervisorClassSpec


class NodeDriver(Model, frozen=True, kw_only=True):
    """One driver on one node."""

    driver: str
    """The name of the HypervisorDriver."""
    version: str | None = None
    """The version that runs on this node."""
    healthy: bool
    """Whether the driver answers and can start machines now."""
    conditions: Annotated[tuple[Condition, ...] | None, Schema(keys=("type",))] = None
    """What stands in the way when it is not healthy."""
    capabilities: dict[str, Any] | None = None
    """The manifest's capabilities, narrowed to what this host has."""
    accelerators: tuple[str, ...] | None = None
    """What virtualizes CPU and memory here, best first: `kvm`, `mshv` or `emulation`."""
    hri_minor: Int32 | None = None
    """The minor version of the hypervisor runtime interface that the driver speaks."""
    manifest_digest: str | None = None
    """Digest of the manifest that the driver on this node runs by."""


class NodeAgent(Model, frozen=True, kw_only=True):
    """How the gateway reaches the agent of a node."""

    endpoint: str
    """`unix:` and an absolute path, or an `https://` address."""


class HypervisorNodeStatus(Model, frozen=True, kw_only=True):
    """What the agent of a node reports."""

    drivers: Annotated[tuple[NodeDriver, ...] | None, Schema(keys=("driver",))] = None
    """The drivers that are installed on the node."""
    agent: NodeAgent | None = None
    """Where the node's agent answers."""


class HypervisorNode(Model, frozen=True, kw_only=True):
    """What one node can run; it has the node's name."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    status: HypervisorNodeStatus | None = None

"""The installation: its configuration and its state."""

from typing import Annotated

from msgspec import field

from anyvisor.api.core import Affinity, LocalObjectReference, Toleration
from anyvisor.api.kubevirt.configuration import KubeVirtConfiguration
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Duration, Int32, Int64, Schema, Time


class CertConfig(Model, frozen=True, kw_only=True):
    """How long a certificate is valid, and when it is renewed."""

    duration: Duration | None = None
    renew_before: Duration | None = None


class KubeVirtSelfSignConfiguration(Model, frozen=True, kw_only=True):
    """Certificates that the installation signs itself."""

    ca: CertConfig | None = None
    ca_overlap_interval: Duration | None = None
    ca_rotate_interval: Duration | None = None
    cert_rotate_interval: Duration | None = None
    server: CertConfig | None = None


class KubeVirtCertificateRotateStrategy(Model, frozen=True, kw_only=True):
    """How certificates are renewed."""

    self_signed: KubeVirtSelfSignConfiguration | None = None


class Flags(Model, frozen=True, kw_only=True):
    """Command line flags of components."""

    api: dict[str, str] | None = None
    controller: dict[str, str] | None = None
    handler: dict[str, str] | None = None


class CustomizeComponentsPatch(Model, frozen=True, kw_only=True):
    """A patch to one installed object."""

    patch: str
    resource_name: Annotated[str, Schema(facts={"minLength": 1})]
    resource_type: Annotated[str, Schema(facts={"minLength": 1})]
    type: str
    """`json`, `merge` or `strategic`."""


class CustomizeComponents(Model, frozen=True, kw_only=True):
    """Changes to the installed objects."""

    flags: Flags | None = None
    patches: tuple[CustomizeComponentsPatch, ...] | None = None


class NodePlacement(Model, frozen=True, kw_only=True):
    """On which nodes components run."""

    affinity: Affinity | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None


class ComponentConfig(Model, frozen=True, kw_only=True):
    """How many of a component run, and where."""

    node_placement: NodePlacement | None = None
    replicas: int | None = None


class KubeVirtWorkloadUpdateStrategy(Model, frozen=True, kw_only=True):
    """How running machines get a new launcher."""

    batch_eviction_interval: Duration | None = None
    batch_eviction_size: Int32 | None = None
    workload_update_methods: tuple[str, ...] | None = None
    """`LiveMigrate` and `Evict`, tried in this order."""


class KubeVirtSpec(Model, frozen=True, kw_only=True):
    """What the installation is to be."""

    certificate_rotate_strategy: KubeVirtCertificateRotateStrategy | None = None
    configuration: KubeVirtConfiguration | None = None
    """Settings of the whole installation."""
    customize_components: CustomizeComponents | None = None
    image_pull_policy: str | None = None
    image_pull_secrets: tuple[LocalObjectReference, ...] | None = None
    image_registry: str | None = None
    image_tag: str | None = None
    infra: ComponentConfig | None = None
    monitor_account: str | None = None
    monitor_namespace: str | None = None
    product_component: str | None = None
    product_name: str | None = None
    product_version: str | None = None
    service_monitor_namespace: str | None = None
    synchronization_port: str | None = None
    uninstall_strategy: str | None = None
    """`RemoveWorkloads` or `BlockUninstallIfWorkloadsExist`."""
    workload_update_strategy: KubeVirtWorkloadUpdateStrategy | None = None
    workloads: ComponentConfig | None = None


class KubeVirtCondition(Model, frozen=True, kw_only=True):
    """One aspect of the installation's state."""

    last_probe_time: Annotated[Time | None, Schema(nullable=True)] = None
    last_transition_time: Annotated[Time | None, Schema(nullable=True)] = None
    message: str | None = None
    reason: str | None = None
    status: str
    type: str


class GenerationStatus(Model, frozen=True, kw_only=True):
    """The generation of an installed object that was last seen."""

    group: str
    hash: str | None = None
    last_generation: Int64
    name: str
    namespace: str | None = None
    resource: str


class KubeVirtStatus(Model, frozen=True, kw_only=True):
    """What is known of the installation."""

    conditions: tuple[KubeVirtCondition, ...] | None = None
    default_architecture: str | None = None
    generations: tuple[GenerationStatus, ...] | None = None
    observed_deployment_config: str | None = None
    observed_deployment_id: str | None = field(default=None, name="observedDeploymentID")
    observed_generation: Int64 | None = None
    """The generation of the specification that is in force."""
    observed_kube_virt_registry: str | None = None
    observed_kube_virt_version: str | None = None
    operator_version: str | None = None
    outdated_virtual_machine_instance_workloads: Int32 | None = None
    phase: str | None = None
    """`Deploying`, `Deployed`, `Deleting` or `Deleted`."""
    synchronization_addresses: tuple[str, ...] | None = None
    target_deployment_config: str | None = None
    target_deployment_id: str | None = field(default=None, name="targetDeploymentID")
    target_kube_virt_registry: str | None = None
    target_kube_virt_version: str | None = None


class KubeVirt(Model, frozen=True, kw_only=True):
    """The installation; there is exactly one."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: KubeVirtSpec
    status: Annotated[KubeVirtStatus | None, Schema(nullable=True)] = None

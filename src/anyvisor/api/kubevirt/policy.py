"""Settings of live migrations for some machines."""

from typing import Annotated

from msgspec import field

from anyvisor.api.kubevirt.vmi_status import ExperimentalMigrationOptions
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Int64, QuantityValue, Schema


class Selectors(Model, frozen=True, kw_only=True):
    """Which machines, by their labels and those of their namespaces."""

    namespace_selector: dict[str, str] | None = None
    virtual_machine_instance_selector: dict[str, str] | None = None


class MigrationPolicySpec(Model, frozen=True, kw_only=True):
    """Settings, and for which machines."""

    allow_auto_converge: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: QuantityValue | None = None
    completion_timeout_per_gib: Int64 | None = field(default=None, name="completionTimeoutPerGiB")
    experimental: ExperimentalMigrationOptions | None = None
    max_downtime_ms: Annotated[Int64 | None, Schema(facts={"minimum": 1, "maximum": 2000000})] = None
    selectors: Selectors


class MigrationPolicyStatus(Model, frozen=True, kw_only=True):
    """Always empty."""


class MigrationPolicy(Model, frozen=True, kw_only=True):
    """Settings of live migrations for the machines that it selects."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: MigrationPolicySpec
    status: Annotated[MigrationPolicyStatus | None, Schema(nullable=True)] = None

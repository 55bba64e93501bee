"""Undocumented."""

from typing import Annotated

from anyvisor.api.kubevirt.vmi_status import ExperimentalMigrationOptions
from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Int64, QuantityValue, Schema


class Selectors(Model, frozen=True, kw_only=True):
    """Undocumented."""

    namespace_selector: dict[str, str] | None = None
    virtual_machine_instance_selector: dict[str, str] | None = None


class MigrationPolicySpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    allow_auto_converge: bool | None = None
    allow_post_copy: bool | None = None
    allow_workload_disruption: bool | None = None
    bandwidth_per_migration: QuantityValue | None = None
    completion_timeout_per_gi_b: Int64 | None = None
    experimental: ExperimentalMigrationOptions | None = None
    max_downtime_ms: Annotated[Int64 | None, Schema(facts={"minimum": 1, "maximum": 2000000})] = None
    selectors: Selectors


class MigrationPolicyStatus(Model, frozen=True, kw_only=True):
    """Undocumented."""


class MigrationPolicy(Model, frozen=True, kw_only=True):
    """Undocumented."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: MigrationPolicySpec
    status: Annotated[MigrationPolicyStatus | None, Schema(nullable=True)] = None

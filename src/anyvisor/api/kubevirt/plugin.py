"""Extensions that change how machines are made."""

from typing import Annotated

from anyvisor.api.meta import Model, ObjectMeta
from anyvisor.api.wire import Schema


class DomainHookCEL(Model, frozen=True, kw_only=True):
    """A change by an expression."""

    expression: Annotated[str, Schema(facts={"minLength": 1})]


class DomainHookSidecar(Model, frozen=True, kw_only=True):
    """A change by a side container."""

    socket_path: Annotated[str, Schema(facts={"minLength": 1})]


class DomainHook(Model, frozen=True, kw_only=True):
    """One change to the guest's hardware."""

    cel: DomainHookCEL | None = None
    condition: str | None = None
    failure_strategy: str | None = None
    sidecar: DomainHookSidecar | None = None
    timeout: str | None = None


class AdmissionReference(Model, frozen=True, kw_only=True):
    """An admission policy or webhook, by name."""

    name: Annotated[str, Schema(facts={"minLength": 1})]


class NodeHook(Model, frozen=True, kw_only=True):
    """One call to a node's service at steps of a machine's life."""

    condition: str | None = None
    failure_strategy: str | None = None
    permitted_hooks: Annotated[tuple[str, ...], Schema(facts={"minItems": 1})]
    socket: Annotated[str, Schema(facts={"minLength": 1})]
    timeout: str | None = None


class PluginSpec(Model, frozen=True, kw_only=True):
    """Hooks, and when they are called."""

    condition: str | None = None
    domain_hooks: tuple[DomainHook, ...] | None = None
    failure_strategy: str | None = None
    mutating_admission_policies: tuple[AdmissionReference, ...] | None = None
    mutating_admission_webhooks: tuple[AdmissionReference, ...] | None = None
    node_hooks: tuple[NodeHook, ...] | None = None
    validating_admission_policies: tuple[AdmissionReference, ...] | None = None
    validating_admission_webhooks: tuple[AdmissionReference, ...] | None = None


class PluginStatus(Model, frozen=True, kw_only=True):
    """Always empty."""


class Plugin(Model, frozen=True, kw_only=True):
    """An extension: hooks into how machines are made and run."""

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta | None = None
    spec: PluginSpec
    status: PluginStatus | None = None

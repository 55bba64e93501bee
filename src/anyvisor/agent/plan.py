"""The part of a plan that the agent executes, read from the launcher pod's annotation."""

import hashlib
from typing import Any, Final

import msgspec

from anyvisor.api.meta import Json, annotations

ANNOTATION: Final = "anyvisor.io/plan"


class PlanError(Exception):
    """A pod's plan cannot be executed; the message is a sentence for the VMI."""


class Substitution(msgspec.Struct, frozen=True, kw_only=True):
    """A field that only a default asked for, and what the machine gets instead."""

    field: str
    to: Any = None


class PlanResources(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Bytes of memory: the guest's own, and of the launcher as a whole."""

    guest_memory_bytes: int = 0
    memory_bytes: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which driver runs the machine, spoken to in which minor, with what."""

    plan_version: int
    hypervisor_class: str = ""
    driver: str
    driver_version: str = ""
    hri_minor: int
    confirmed: tuple[str, ...] = ()
    accelerator: str = ""
    machine_type: str = ""
    parameters: dict[str, str] = {}
    launch_mode: str = "exec"
    resources: PlanResources = PlanResources()
    substitutions: tuple[Substitution, ...] = ()
    digest: str = ""


_decode = msgspec.json.Decoder(Plan).decode


def of_pod(pod: Json) -> Plan:
    """The plan of a launcher pod; raises PlanError."""
    text = annotations(pod).get(ANNOTATION, "")
    if not text:
        raise PlanError(f"the launcher pod has no annotation {ANNOTATION}; the controller must set it")
    try:
        plan = _decode(text)
    except msgspec.DecodeError as error:
        raise PlanError(f"annotation {ANNOTATION} of the launcher pod cannot be read: {error}") from error
    if plan.plan_version != 1:
        raise PlanError(f"the plan has version {plan.plan_version}, this agent executes version 1: upgrade it")
    return msgspec.structs.replace(plan, digest="sha256:" + hashlib.sha256(text.encode()).hexdigest())

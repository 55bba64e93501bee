"""What a hypervisor driver says to a machine, asked of its manifest alone: no node, no server."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from anyvisor.admission.offline import Offline
from anyvisor.api.meta import object_at
from anyvisor.cli.main import CommandError
from anyvisor.hri import packages
from anyvisor.planning.classes import ClassError, installed
from anyvisor.planning.plan import Finding
from anyvisor.planning.planner import Driver, plan

_AT = {"VirtualMachine": ("spec", "template", "spec"), "VirtualMachineInstance": ("spec",)}


def findings(obj: dict[str, Any], driver: str, offline: Offline) -> list[Finding]:
    """The findings of a plan for a VM or VMI, as its user wrote it, on a class of this driver; errors first.

    Their fields are paths in the object.
    """
    at = _AT.get(str(obj.get("kind")))
    if at is None:
        return []
    instance = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "machine"},
        "spec": object_at(obj, *at),
    }
    answer = offline.decide(offline.request(instance))
    sources = {default.path: default.source for default in answer.defaults}
    made = plan(object_at(answer.object, "spec"), _class(driver), _driver(driver), defaulted=sources)
    order = {"error": 0, "warn": 1, "info": 2}
    return [_placed(one, ".".join(at)) for one in sorted(made.findings, key=lambda one: order[one.severity])]


def _class(driver: str) -> Mapping[str, Any]:
    return {"metadata": {"name": driver}, "spec": {"driver": driver}}


def _driver(name: str) -> Driver:
    try:
        package = packages.load(name)
        return installed({"metadata": {"name": name}, "spec": {"manifest": package.manifest}})
    except (packages.DriverError, ClassError) as error:
        raise CommandError(f"--class {name}: {error}") from error


def _placed(finding: Finding, at: str) -> Finding:
    field = finding.field.removeprefix("spec").removeprefix(".")
    return replace(finding, field=f"{at}.{field}" if field else at)

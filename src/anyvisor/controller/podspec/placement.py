"""On which nodes the launcher pod may run."""

from collections.abc import Mapping
from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.launch import Launch
from anyvisor.controller.podspec import reservations
from anyvisor.controller.settings import Settings
from anyvisor.controller.vmi.topology import needed

CPU_MODEL: Final = "cpu-model.node.kubevirt.io/"
CPU_FEATURE: Final = "cpu-feature.node.kubevirt.io/"
CPU_VENDOR: Final = "cpu-vendor.node.kubevirt.io/"
MACHINE_TYPE: Final = "machine-type.node.kubevirt.io/"
HYPERV: Final = "hyperv.node.kubevirt.io/"
TSC_FREQUENCY: Final = "scheduling.node.kubevirt.io/tsc-frequency-"
OBSOLETE_HOST_MODEL: Final = "node-labeller.kubevirt.io/obsolete-host-model"
ARCHITECTURE: Final = "kubernetes.io/arch"
ANY_MODEL: Final = frozenset({"", "host-model", "host-passthrough"})
HYPERV_HOST_FEATURES: Final = (
    "vpindex",
    "runtime",
    "reset",
    "synic",
    "synictimer",
    "frequencies",
    "reenlightenment",
    "tlbflush",
    "ipi",
)
"""Enlightenments that need the host's help; the others work everywhere."""


def node_selector(vmi: Json, launch: Launch, settings: Settings) -> dict[str, str]:
    """Labels that a node must have."""
    selector = {words.SCHEDULABLE_LABEL: "true"}
    architecture = text_at(vmi, "spec", "architecture")
    if architecture:
        selector[ARCHITECTURE] = architecture.lower()
    selector |= settings.developer("nodeSelectors") or {}
    selector |= object_at(vmi, "spec", "nodeSelector")
    needs = [*_cpu_needs(vmi), *_machine_needs(vmi), *_security_needs(vmi)]
    if settings.gate("HypervStrictCheck"):
        needs += _hyperv_needs(vmi)
    return selector | dict.fromkeys(needs, "true") | dict(launch.node_selector)


def _cpu_needs(vmi: Json) -> list[str]:
    cpu = object_at(vmi, "spec", "domain", "cpu")
    model = text_at(cpu, "model")
    needs: list[str] = []
    if cpu.get("dedicatedCpuPlacement") is True:
        needs.append("kubevirt.io/cpumanager")
    if model not in ANY_MODEL:
        needs.append(CPU_MODEL + model)
    if model:
        needs += [CPU_FEATURE + one["name"] for one in list_at(cpu, "features") if _required(one)]
    if "realtime" in cpu:
        needs.append("kubevirt.io/realtime")
    frequency = object_at(vmi, "status", "topologyHints").get("tscFrequency")
    if frequency and needed(vmi):
        needs.append(f"{TSC_FREQUENCY}{frequency}")
    return needs


def _required(feature: Json) -> bool:
    return feature.get("policy") in {None, "", "require"} and bool(feature.get("name"))


def _machine_needs(vmi: Json) -> list[str]:
    machine = text_at(vmi, "status", "machine", "type") or text_at(vmi, "spec", "domain", "machine", "type")
    return [MACHINE_TYPE + machine] if machine else []


def _security_needs(vmi: Json) -> list[str]:
    security = object_at(vmi, "spec", "domain").get("launchSecurity")
    if not isinstance(security, dict):
        return []
    needs = ["kubevirt.io/s390-pv"] if text_at(vmi, "spec", "architecture") == "s390x" else []
    if "sev" in security or "snp" in security:
        needs.append("kubevirt.io/sev")
    if object_at(vmi, "spec", "domain", "launchSecurity", "sev", "policy").get("encryptedState") is True:
        needs.append("kubevirt.io/sev-es")
    if "snp" in security:
        needs.append("kubevirt.io/sev-snp")
    if "tdx" in security:
        needs.append("kubevirt.io/tdx")
    return needs


def _hyperv_needs(vmi: Json) -> list[str]:
    hyperv = object_at(vmi, "spec", "domain", "features", "hyperv")
    needs = [HYPERV + name for name in HYPERV_HOST_FEATURES if _on(hyperv, name)]
    if _on(hyperv, "evmcs"):
        needs.append(CPU_VENDOR + "Intel")
    return needs


def _on(features: Json, name: str) -> bool:
    return name in features and object_at(features, name).get("enabled") is not False


def affinity(vmi: Json, reserved: Mapping[str, str]) -> Json | None:
    """The instance's affinity, less the nodes whose CPU cannot serve it or that run who reserves the same disk."""
    wanted = duplicate(object_at(vmi, "spec", "affinity"))
    cpu = object_at(vmi, "spec", "domain", "cpu")
    if text_at(cpu, "model") in {"", "host-model"}:
        _require(wanted, {"key": OBSOLETE_HOST_MODEL, "operator": "DoesNotExist"})
    for feature in list_at(cpu, "features"):
        if feature.get("policy") == "forbid":
            _require(wanted, {"key": CPU_FEATURE + feature["name"], "operator": "DoesNotExist"})
    reservations.keep_away(wanted, reserved)
    return wanted or None


def _require(affinity_: Json, requirement: Json) -> None:
    """Add a requirement to every alternative, since the terms of a node selector are alternatives."""
    node = affinity_.setdefault("nodeAffinity", {})
    required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:
        term["matchExpressions"] = [*list_at(term, "matchExpressions"), requirement]

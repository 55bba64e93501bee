"""Hyper-V enlightenments: which need which others."""

from collections.abc import Iterator

from anyvisor.admission.result import Causes
from anyvisor.admission.values import Obj, items, mapping
from anyvisor.admission.view import Spec

# Leaves before what they need, so that one pass in this order completes a chain.
NEEDS = (
    ("evmcs", "vapic"),
    ("ipi", "vpindex"),
    ("tlbflush", "vpindex"),
    ("synictimer", "synic"),
    ("synic", "vpindex"),
)
NESTED_FEATURE = "vmx"
NESTED_POLICY = "require"


def is_on(hyperv: Obj, name: str) -> bool:
    """Whether an enlightenment is switched on (a present one is, after defaults)."""
    return mapping(hyperv.get(name)).get("enabled") is True


def nested_is_wanted(hyperv: Obj) -> bool:
    """Whether nested enlightenments are asked for, which need the CPU feature of nested virtualization."""
    return hyperv.get("evmcs") is not None and mapping(hyperv["evmcs"]).get("enabled") is not False


def missing_needs(hyperv: Obj) -> Iterator[tuple[str, str]]:
    """The pairs (enlightenment, what it needs) that are not fulfilled."""
    for name, need in NEEDS:
        if is_on(hyperv, name) and not is_on(hyperv, need):
            yield name, need


def check(spec: Spec, out: Causes) -> None:
    """Dependencies are fulfilled, and single enlightenments do not stand beside passing all through."""
    features = mapping(spec.domain.get("features"))
    if features.get("hyperv") is None:
        return
    hyperv, at = mapping(features["hyperv"]), f"{spec.at}.domain.features.hyperv"
    for name, need in missing_needs(hyperv):
        out.invalid(
            f"{at}.domain.features.hyperv.{name}",
            f"{at}.{name} needs {at}.{need}, which is switched off; switch it on or {name} off",
            f"{at}.{name}",
        )
    if nested_is_wanted(hyperv):
        _nested_feature(spec, out)
    if features.get("hypervPassthrough") is not None:
        out.invalid(at, f"{at} and hypervPassthrough exclude each other; keep one of them")


def _nested_feature(spec: Spec, out: Causes) -> None:
    at, features = f"{spec.at}.domain.cpu.features", items(spec.cpu.get("features"))
    if not features:
        out.required(at, f"{at} lacks {NESTED_FEATURE}, which hyperv.evmcs needs; add it with policy {NESTED_POLICY}")
    for index, feature in enumerate(features):
        if feature.get("name") == NESTED_FEATURE and feature.get("policy") != NESTED_POLICY:
            where = f"{at}[{index}].policy"
            out.invalid(where, f"{where}: hyperv.evmcs needs {NESTED_FEATURE} with the policy {NESTED_POLICY}; set it")

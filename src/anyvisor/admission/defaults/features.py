"""Defaults of switches: what is named without a value is on; enlightenments bring along what they need."""

from typing import Any

from anyvisor.admission import hyperv
from anyvisor.admission.defaults.filler import Filler, child
from anyvisor.admission.values import Obj, items, mapping

_TIMERS = ("hpet", "kvm", "pit", "rtc", "hyperv")
_ENLIGHTENMENTS = (
    "relaxed",
    "vapic",
    "spinlocks",
    "vpindex",
    "runtime",
    "synic",
    "synictimer",
    "reset",
    "vendorid",
    "frequencies",
    "reenlightenment",
    "tlbflush",
    "ipi",
    "evmcs",
)
_NESTED = {"synictimer": ("direct",), "tlbflush": ("direct", "extended")}
_SPINLOCK_RETRIES = 4096


def _switch_on(state: Any, at: str, filler: Filler) -> None:
    if type(state) is dict:
        filler.default(mapping(state), "enabled", value=True, at=at)


def fill_clock(domain: Obj, at: str, filler: Filler) -> None:
    """A timer that is named is present."""
    timers = mapping(mapping(domain.get("clock")).get("timer"))
    for name in _TIMERS:
        if type(timers.get(name)) is dict:
            filler.default(mapping(timers[name]), "present", value=True, at=f"{at}.clock.timer.{name}")


def fill_features(domain: Obj, at: str, filler: Filler, *, acpi: bool) -> None:
    """ACPI, and every feature that is named."""
    features, at = child(domain, "features"), f"{at}.features"
    _switch(child(features, "acpi"), f"{at}.acpi", filler, value=acpi)
    for name in ("apic", "smm", "pvspinlock"):
        _switch_on(features.get(name), f"{at}.{name}", filler)
    if type(features.get("hyperv")) is dict:
        _fill_enlightenments(mapping(features["hyperv"]), f"{at}.hyperv", filler)


def _switch(state: Obj, at: str, filler: Filler, *, value: bool) -> None:
    filler.default(state, "enabled", value=value, at=at)


def _fill_enlightenments(states: Obj, at: str, filler: Filler) -> None:
    for name in _ENLIGHTENMENTS:
        if type(states.get(name)) is not dict:
            continue
        state = mapping(states[name])
        _switch_on(state, f"{at}.{name}", filler)
        for nested in _NESTED.get(name, ()):
            _switch_on(state.get(nested), f"{at}.{name}.{nested}", filler)
        if name == "spinlocks" and state.get("enabled") is True:
            filler.default(state, "spinlocks", _SPINLOCK_RETRIES, f"{at}.{name}")


def fill_needs(domain: Obj, at: str, filler: Filler) -> None:
    """Switch on what an enlightenment needs, unless the user switched that off (validation then says so)."""
    features = mapping(domain.get("features"))
    if type(features.get("hyperv")) is not dict:
        return
    states, where = mapping(features["hyperv"]), f"{at}.features.hyperv"
    for name, need in hyperv.NEEDS:
        if not hyperv.is_on(states, name) or hyperv.is_on(states, need):
            continue
        if mapping(states.get(need)).get("enabled") is not None:
            return
        filler.set(child(states, need), "enabled", value=True, at=f"{where}.{need}", source=f"needed by {where}.{name}")
    if hyperv.nested_is_wanted(states):
        _fill_nested_feature(domain, at, filler)


def _fill_nested_feature(domain: Obj, at: str, filler: Filler) -> None:
    cpu, source = child(domain, "cpu"), f"needed by {at}.features.hyperv.evmcs"
    features = items(cpu.get("features"))
    for index, feature in enumerate(features):
        if feature.get("name") == hyperv.NESTED_FEATURE:
            if feature.get("policy") != hyperv.NESTED_POLICY:
                filler.set(feature, "policy", hyperv.NESTED_POLICY, f"{at}.cpu.features[{index}]", source)
            return
    feature = {"name": hyperv.NESTED_FEATURE, "policy": hyperv.NESTED_POLICY}
    filler.set(cpu, "features", [*features, feature], f"{at}.cpu", source)

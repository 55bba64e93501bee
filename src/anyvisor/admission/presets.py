"""Applying VirtualMachineInstancePresets (deprecated): defaults for the VMIs that a label selector matches."""

from collections.abc import Sequence

from anyvisor.admission.defaults.filler import Filler, child
from anyvisor.admission.result import AdmissionRequest
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, clone, mapping, text, texts
from anyvisor.api.selectors import SelectorError, selector_of

DEPRECATION = "VirtualMachineInstancePresets are deprecated; use instance types and preferences instead"

_EXCLUDE = "virtualmachineinstancepresets.admission.kubevirt.io/exclude"
_APPLIED = "virtualmachinepreset.kubevirt.io/"
_WHOLE = ("cpu", "firmware", "features", "ioThreadsPolicy")


def apply(vmi: Obj, request: AdmissionRequest, filler: Filler) -> str:
    """Merge the matching presets into the VMI; gives a sentence when they contradict each other."""
    metadata = mapping(vmi.get("metadata"))
    if mapping(metadata.get("annotations")).get(_EXCLUDE) == "true":
        return ""
    own = texts(metadata.get("labels"))
    try:
        matching = [
            preset
            for preset in request.related.list("VirtualMachineInstancePreset", request.namespace)
            if selector_of(mapping(preset.get("spec")).get("selector") or {}).matches(own)
        ]
    except SelectorError as error:
        return f"a VirtualMachineInstancePreset in this namespace has a selector that cannot be read: {error}"
    if problem := _contradiction(matching):
        return problem
    for preset in matching:
        name = text(mapping(preset.get("metadata")).get("name"))
        if _merge(_domain(preset), child(child(vmi, "spec"), "domain"), f"preset {name}", filler):
            annotations = child(child(vmi, "metadata"), "annotations")
            annotations[_APPLIED + name] = "kubevirt.io/v1"
    return ""


def was_applied(vmi: Obj) -> bool:
    """Whether a preset left its mark on the VMI."""
    return any(key.startswith(_APPLIED) for key in mapping(mapping(vmi.get("metadata")).get("annotations")))


def _domain(preset: Obj) -> Obj:
    return mapping(mapping(preset.get("spec")).get("domain"))


def _contradiction(presets: Sequence[Obj]) -> str:
    for index, preset in enumerate(presets):
        for other in presets[:index]:
            fields = _conflicts(_domain(preset), _domain(other))
            if fields:
                names = [text(mapping(p.get("metadata")).get("name")) for p in (other, preset)]
                return (
                    f"the presets {names[0]} and {names[1]} both match this VMI and differ in {', '.join(fields)}; "
                    "make them agree, or change the labels of the VMI"
                )
    return ""


def _conflicts(one: Obj, other: Obj) -> list[str]:
    fields = [
        name
        for name in _WHOLE
        if one.get(name) is not None and other.get(name) is not None and not equal(one[name], other[name])
    ]
    requests, theirs = _requests(one), _requests(other)
    fields += [f"requests.{k}" for k in requests if k in theirs and requests[k] != theirs[k]]
    dogs = [mapping(domain.get("devices")).get("watchdog") for domain in (one, other)]
    if None not in dogs and not equal(*dogs):
        fields.append("watchdog")
    return fields + _clock_conflicts(one.get("clock"), other.get("clock"))


def _clock_conflicts(one: object, other: object) -> list[str]:
    if one is None or other is None:
        return []
    ours, theirs = mapping(one), mapping(other)
    fields = ["clock"] if not equal(_without_timer(ours), _without_timer(theirs)) else []
    timers = ours.get("timer"), theirs.get("timer")
    if None not in timers and not equal(*timers):
        fields.append("clock.timer")
    return fields


def _requests(domain: Obj) -> Obj:
    return mapping(mapping(domain.get("resources")).get("requests"))


def _without_timer(clock: Obj) -> Obj:
    return {key: value for key, value in clock.items() if key != "timer"}


def _merge(preset: Obj, domain: Obj, source: str, filler: Filler) -> bool:
    """Fill in what the VMI leaves open; tells whether any part of the preset now stands in it."""
    applied = False
    for holder, key, at, value in _parts(preset, domain):
        if holder.get(key) is None:
            filler.set(holder, key, clone(value), at, source)
        applied = applied or equal(holder[key], value)
    clock = preset.get("clock")
    return applied or (clock is not None and equal(domain.get("clock"), clock))


def _parts(preset: Obj, domain: Obj) -> list[tuple[Obj, str, str, object]]:
    at = "spec.domain"
    parts: list[tuple[Obj, str, str, object]] = [
        (domain, name, at, preset[name]) for name in _WHOLE if preset.get(name) is not None
    ]
    if _requests(preset):
        parts.append((child(domain, "resources"), "requests", f"{at}.resources", _requests(preset)))
    if type(preset.get("clock")) is dict:
        clock = mapping(preset["clock"])
        if domain.get("clock") is None:
            parts.append((domain, "clock", at, clock))
        elif clock.get("timer") is not None:
            parts.append((child(domain, "clock"), "timer", f"{at}.clock", clock["timer"]))
    dog = mapping(preset.get("devices")).get("watchdog")
    if dog is not None:
        parts.append((child(domain, "devices"), "watchdog", f"{at}.devices", dog))
    return parts

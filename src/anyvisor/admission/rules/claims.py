"""Rules for resource claims (dynamic resource allocation) and the devices that use them."""

from dataclasses import dataclass

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.names import LABEL_RULE, SUBDOMAIN_RULE, is_label, is_subdomain
from anyvisor.admission.result import Causes
from anyvisor.admission.rules.network import claimed_pairs
from anyvisor.admission.values import Obj, items, shown, text
from anyvisor.admission.view import Spec


@dataclass(frozen=True, slots=True)
class _Kind:
    field: str
    gate: str
    may_mix: bool


_GPUS = _Kind("gpus", "GPUsWithDRA", may_mix=False)
_HOST_DEVICES = _Kind("hostDevices", "HostDevicesWithDRA", may_mix=True)


def claims_and_devices(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Claims are well formed; each device names a device or a claim; no device is used twice."""
    at = f"{spec.at}.resourceClaims"
    claims = items(spec.raw.get("resourceClaims"))
    _claims(at, claims, out)
    owners: dict[str, str] = {}
    wanted: set[str] = set()
    for kind in (_GPUS, _HOST_DEVICES):
        where = f"{spec.at}.domain.devices.{kind.field}"
        pairs = _devices(where, items(spec.devices.get(kind.field)), kind, config, out)
        wanted.update(pair.partition("/")[0] for pair in pairs)
        _merge(owners, pairs, where, out)
    if config.on("NetworkDevicesWithDRA"):
        _merge(owners, claimed_pairs(spec), f"{spec.at}.networks", out)
    missing = wanted - {text(claim.get("name")) for claim in claims}
    if missing:
        out.invalid(at, f"{at} lacks {', '.join(sorted(missing))}, which devices of this VM use; add it")


def _claims(at: str, claims: list[Obj], out: Causes) -> None:
    names: set[str] = set()
    for index, claim in enumerate(claims):
        where, name = f"{at}[{index}]", text(claim.get("name"))
        if not name:
            out.required(f"{where}.name", f"{where}.name is missing")
        elif name in names:
            out.duplicate(f"{where}.name", f"{where}.name {name!r} is taken by another claim; rename one")
        else:
            names.add(name)
            if not is_label(name):
                out.invalid(f"{where}.name", f"{where}.name is {name!r}; it must be {LABEL_RULE}")
        given = [key for key in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(key) is not None]
        if len(given) != 1:
            out.invalid(where, f"{where} needs exactly one of resourceClaimName and resourceClaimTemplateName")
        for key in given:
            if not is_subdomain(text(claim[key])):
                out.invalid(f"{where}.{key}", f"{where}.{key} is {shown(claim[key])}; it must be {SUBDOMAIN_RULE}")


def _is_claimed(device: Obj) -> bool:
    has_claim = device.get("claimName") is not None or device.get("requestName") is not None
    return has_claim and not text(device.get("deviceName"))


def _devices(at: str, devices: list[Obj], kind: _Kind, config: ClusterConfig, out: Causes) -> dict[str, int]:
    """The claim and request pairs in use, with the index of their first use."""
    claimed = [(index, device) for index, device in enumerate(devices) if _is_claimed(device)]
    if not kind.may_mix and claimed and len(claimed) < len(devices):
        out.invalid(at, f"{at} mixes devices by name and devices by claim; use one of the two for all of them")
        return {}
    _named_devices(at, devices, out)
    if claimed and not config.on(kind.gate):
        out.invalid(at, f"{at}: devices by claim need the feature gate {kind.gate}; enable it or name the device")
        return {}
    pairs: dict[str, int] = {}
    for index, device in claimed:
        name, request, where = text(device.get("claimName")), text(device.get("requestName")), f"{at}[{index}]"
        if not name:
            out.required(f"{where}.claimName", f"{where}.claimName is missing; name an entry of resourceClaims")
        if not request:
            out.required(f"{where}.requestName", f"{where}.requestName is missing; name a request of the claim")
        if not name or not request:
            continue
        if f"{name}/{request}" in pairs:
            out.duplicate(where, f"{where}: the device {name}/{request} is already used above; use another request")
        pairs.setdefault(f"{name}/{request}", index)
    return pairs


def _named_devices(at: str, devices: list[Obj], out: Causes) -> None:
    for index, device in enumerate(devices):
        if _is_claimed(device):
            continue
        where = f"{at}[{index}]"
        if not text(device.get("deviceName")):
            out.required(at, f"{where} names no device; give deviceName, or claimName and requestName", where)
        elif device.get("claimName") is not None or device.get("requestName") is not None:
            out.invalid(at, f"{where} has both deviceName and a claim; keep one of them", where)


def _merge(owners: dict[str, str], pairs: dict[str, int], at: str, out: Causes) -> None:
    for pair, index in pairs.items():
        where = f"{at}[{index}]"
        if pair in owners:
            out.duplicate(where, f"{where}: the device {pair} is already used by {owners[pair]}; use another request")
        else:
            owners[pair] = where

"""Warnings: what is allowed, yet useless, deprecated or likely a mistake."""

from functools import lru_cache

from anyvisor.admission.names import is_mac
from anyvisor.admission.values import mapping, shown, text
from anyvisor.admission.view import Spec

RUNNING_DEPRECATED = "spec.running is deprecated, please use spec.runStrategy instead."

_CLOUD_CONFIG = "#cloud-config"
_NO_MAC = ("00:00:00:00:00:00", "00-00-00-00-00-00", "0000.0000.0000")
_INLINE_MAX = 2048


def for_spec(spec: Spec) -> list[str]:
    """The warnings for a VMI spec."""
    found: list[str] = []
    _interfaces(spec, found)
    grace = spec.raw.get("terminationGracePeriodSeconds")
    if type(grace) is int and grace < 0:
        found.append(
            f"{spec.at}.terminationGracePeriodSeconds is {shown(grace)}: it counts as 0, a power cut; give 0 or more"
        )
    for index, volume in enumerate(spec.volumes):
        for kind in ("cloudInitNoCloud", "cloudInitConfigDrive"):
            data = text(mapping(volume.get(kind)).get("userData"))
            if not data.startswith(_CLOUD_CONFIG) or len(data) > _INLINE_MAX:
                continue
            if problem := _yaml_problem(data):
                found.append(
                    f"{spec.at}.volumes[{index}].{kind}.userData is no valid YAML ({problem}); the guest will ignore it"
                )
    return found


def _interfaces(spec: Spec, found: list[str]) -> None:
    for index, interface in enumerate(spec.interfaces):
        mac = text(interface.get("macAddress"))
        if not is_mac(mac):
            continue
        at = f"{spec.at}.domain.devices.interfaces[{index}].macAddress"
        if mac in _NO_MAC:
            found.append(f"{at} is all zeros, which no network accepts; remove it to get one")
        elif int(mac[:2], 16) & 1:
            found.append(f"{at} {mac} is a multicast address, which no interface can have; make its first byte even")


@lru_cache(maxsize=256)
def _yaml_problem(data: str) -> str:
    """Where the text stops being YAML; empty when it is YAML."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yaml.compose(data, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        return f"line {mark.line + 1}: {error.problem}" if mark is not None else str(error.problem)
    except (yaml.YAMLError, RecursionError, ValueError):
        return "it cannot be read"
    return ""

"""Defaults and rules of Services.

Sources: https://kubernetes.io/docs/concepts/services-networking/service/ and the API reference of `core/v1 Service`.
"""

import ipaddress
import re
from typing import Any, Final

from anyvisor.api.meta import object_at
from anyvisor.embedded.apiserver.status import Cause, forbidden_field, invalid_value, required
from anyvisor.embedded.apiserver.values import as_list, as_objects

Json = dict[str, Any]

HEADLESS: Final = "None"
TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
WITH_NODE_PORTS: Final = ("NodePort", "LoadBalancer")
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
AFFINITY_SECONDS: Final = 10800
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_LENGTH: Final = 63
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_PORT_NAME: Final = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")


def needs_address(spec: Json) -> bool:
    """Whether a Service has addresses of the cluster's own; a headless one has none, but has the field."""
    return spec.get("type") != "ExternalName"


def needs_node_ports(spec: Json) -> bool:
    """Whether each port is also served on the node's addresses."""
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


def defaults(obj: Json) -> None:
    """Set what a writer may leave out."""
    spec: Json = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {}).setdefault(
            "timeoutSeconds", AFFINITY_SECONDS
        )
    for port in as_objects(spec.get("ports")):
        port.setdefault("protocol", "TCP")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port")
    if needs_address(spec):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in WITH_NODE_PORTS or spec.get("externalIPs"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def prepare(obj: Json, old: Json | None) -> None:
    """Set what the server decides; an update that leaves out what was allocated keeps it."""
    spec: Json = obj["spec"]
    if needs_address(spec):
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
    if old is None:
        obj["status"] = {"loadBalancer": {}}
    else:
        _keep_allocated(spec, old["spec"])
    _pair_addresses(spec)


def _keep_allocated(spec: Json, old: Json) -> None:
    if not needs_address(spec):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            if spec.get(name) == old.get(name):
                spec.pop(name, None)
    elif needs_address(old) and not spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIP"] = old.get("clusterIP", "")
        spec["clusterIPs"] = list(old.get("clusterIPs") or [])
    before = {(p.get("protocol"), p.get("port")): p.get("nodePort") for p in as_objects(old.get("ports"))}
    for port in as_objects(spec.get("ports")):
        had = before.get((port.get("protocol"), port.get("port")))
        if needs_node_ports(spec) and not port.get("nodePort") and had:
            port["nodePort"] = had
        elif not needs_node_ports(spec) and port.get("nodePort") and port["nodePort"] == had:
            del port["nodePort"]


def _pair_addresses(spec: Json) -> None:
    """`clusterIP` is the first of `clusterIPs`, whichever was given."""
    first, listed = spec.get("clusterIP"), spec.get("clusterIPs")
    if first and not listed:
        spec["clusterIPs"] = [first]
    elif listed and not first:
        spec["clusterIP"] = listed[0]


def check(obj: Json, old: Json | None) -> list[Cause]:
    """The mistakes of a Service."""
    spec: Json = obj["spec"]
    causes = [*_check_name(obj, old), *_check_kind(spec), *_check_addresses(spec, old), *_check_ports(spec)]
    for name, allowed in (
        ("sessionAffinity", ("ClientIP", "None")),
        ("internalTrafficPolicy", ("Cluster", "Local")),
        ("externalTrafficPolicy", ("Cluster", "Local")),
    ):
        if name in spec and spec[name] not in allowed:
            causes.append(_unsupported(f"spec.{name}", spec[name], allowed))
    return causes


def _check_name(obj: Json, old: Json | None) -> list[Cause]:
    name = str(obj["metadata"].get("name", ""))
    if old is not None:
        return []
    return _label_causes("metadata.name", name)


def _label_causes(at: str, name: str) -> list[Cause]:
    long = [f"must be no more than {_LABEL_LENGTH} characters"] if len(name) > _LABEL_LENGTH else []
    wrong = [] if _LABEL.fullmatch(name) else [_LABEL_TEXT]
    return [invalid_value(at, name, words) for words in (*long, *wrong)]


def _check_kind(spec: Json) -> list[Cause]:
    causes: list[Cause] = []
    if spec["type"] not in TYPES:
        causes.append(_unsupported("spec.type", spec["type"], TYPES))
    if spec["type"] == "ExternalName":
        if not spec.get("externalName"):
            causes.append(required("spec.externalName"))
        if spec.get("clusterIP"):
            causes.append(forbidden_field("spec.clusterIPs[0]", "may not be set for ExternalName services"))
    elif not spec.get("ports") and spec.get("clusterIP") != HEADLESS:
        causes.append(required("spec.ports"))
    if spec.get("clusterIP") == HEADLESS and spec["type"] in WITH_NODE_PORTS:
        causes.append(
            invalid_value("spec.clusterIPs[0]", HEADLESS, f"may not be set to 'None' for {spec['type']} services")
        )
    return causes


def _check_addresses(spec: Json, old: Json | None) -> list[Cause]:
    causes: list[Cause] = []
    before = object_at(old or {}, "spec")
    kept = before.get("clusterIP") if needs_address(spec) and needs_address(before) else None
    if kept and spec.get("clusterIP") != kept:
        causes.append(invalid_value("spec.clusterIPs[0]", spec.get("clusterIP"), "may not change once set"))
    listed = as_list(spec.get("clusterIPs"))
    if len(listed) > 1:
        causes.append(invalid_value("spec.clusterIPs", listed, "this machine has one IP family"))
    if listed and spec.get("clusterIP") != listed[0]:
        causes.append(invalid_value("spec.clusterIPs", listed, "first value must match `clusterIP`"))
    for index, address in enumerate(listed[:1]):
        if address != HEADLESS and not _is_ipv4(address):
            causes.append(invalid_value(f"spec.clusterIPs[{index}]", address, "must be a valid IPv4 address"))
    for index, family in enumerate(spec.get("ipFamilies") or []):
        if family != "IPv4":
            causes.append(invalid_value(f"spec.ipFamilies[{index}]", family, "not configured on this cluster"))
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        causes.append(
            invalid_value(
                "spec.ipFamilyPolicy", "RequireDualStack", "this cluster is not configured for dual-stack services"
            )
        )
    for index, address in enumerate(spec.get("externalIPs") or []):
        if not _is_ipv4(address):
            causes.append(invalid_value(f"spec.externalIPs[{index}]", address, "must be a valid IPv4 address"))
    return causes


def _check_ports(spec: Json) -> list[Cause]:
    causes: list[Cause] = []
    ports = as_objects(spec.get("ports"))
    names: set[str] = set()
    numbers: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        causes += _check_port(port, at, named=len(ports) > 1)
        name, number = str(port.get("name") or ""), (port.get("protocol"), port.get("port"))
        if name and name in names:
            causes.append(Cause(f"{at}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
        if number in numbers:
            shown = f'{{"protocol":"{number[0]}","port":{number[1]}}}'
            causes.append(Cause(at, "FieldValueDuplicate", f"Duplicate value: {shown}"))
        names.add(name)
        numbers.add(number)
        if port.get("nodePort") and spec["type"] not in WITH_NODE_PORTS:
            causes.append(forbidden_field(f"{at}.nodePort", f"may not be used when `type` is '{spec['type']}'"))
    return causes


def _check_port(port: Json, at: str, *, named: bool) -> list[Cause]:
    causes: list[Cause] = []
    name = str(port.get("name") or "")
    if named and not name:
        causes.append(required(f"{at}.name"))
    elif name:
        causes.extend(_label_causes(f"{at}.name", name))
    for field, value in (("port", port.get("port")), ("targetPort", port.get("targetPort"))):
        if isinstance(value, str) and field == "targetPort":
            if not _PORT_NAME.fullmatch(value):
                causes.append(
                    invalid_value(
                        f"{at}.targetPort",
                        value,
                        "must be a port's number or its name: at most 15 lower case letters, digits and single "
                        "hyphens, at least one of them a letter",
                    )
                )
        elif not isinstance(value, int) or not 0 < value < 1 << 16:
            causes.append(invalid_value(f"{at}.{field}", value or 0, "must be between 1 and 65535, inclusive"))
    if port.get("protocol") not in PROTOCOLS:
        causes.append(_unsupported(f"{at}.protocol", port.get("protocol"), PROTOCOLS))
    return causes


def _is_ipv4(value: Any) -> bool:
    try:
        ipaddress.IPv4Address(str(value))
    except ValueError:
        return False
    return True


def _unsupported(path: str, value: Any, allowed: tuple[str, ...]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in allowed)
    return Cause(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}')

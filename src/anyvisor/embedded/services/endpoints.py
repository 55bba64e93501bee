"""Which pods stand behind a Service: its EndpointSlices, pure.

https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final

from anyvisor.api.meta import Json, is_deleting, labels, list_at, name, namespace, object_at, text_at, uid

SERVICE_LABEL: Final = "kubernetes.io/service-name"
MANAGED_LABEL: Final = "endpointslice.kubernetes.io/managed-by"
HEADLESS_LABEL: Final = "service.kubernetes.io/headless"
MANAGER: Final = "endpointslice-controller.k8s.io"
MAX_ENDPOINTS: Final = 100
"""In one slice, as Kubernetes' controller does by default."""
_FINISHED: Final = ("Succeeded", "Failed")


def selects(selector: Mapping[str, str], found: Mapping[str, str]) -> bool:
    """Whether labels obey a Service's selector; one that is empty selects nothing."""
    return bool(selector) and all(found.get(key) == value for key, value in selector.items())


def slices(service: Json, pods: Iterable[Json]) -> list[Json]:
    """The slices that the Service should have: one for each set of port numbers, more for many pods."""
    by_ports: dict[str, list[Json]] = {}
    for pod in sorted(pods, key=name):
        if text_at(pod, "status", "podIP") and text_at(pod, "status", "phase") not in _FINISHED:
            ports = json.dumps(_ports(service, pod), sort_keys=True)
            by_ports.setdefault(ports, []).append(_endpoint(service, pod))
    return [
        _slice(service, json.loads(ports), endpoints[start : start + MAX_ENDPOINTS], f"{ports}/{start}")
        for ports, endpoints in sorted(by_ports.items())
        for start in range(0, len(endpoints), MAX_ENDPOINTS)
    ]


def _ports(service: Json, pod: Json) -> list[Json]:
    """The Service's ports as this pod has them; one that is named and that the pod does not have is left out."""
    found: list[Json] = []
    for port in list_at(service, "spec", "ports"):
        target = port.get("targetPort") or port.get("port")
        number = _named(pod, target, str(port.get("protocol"))) if isinstance(target, str) else target
        if number:
            found.append({"name": port.get("name") or "", "port": number, "protocol": port.get("protocol") or "TCP"})
    return found


def _named(pod: Json, wanted: str, protocol: str) -> int:
    for container in list_at(pod, "spec", "containers"):
        for port in list_at(container, "ports"):
            if port.get("name") == wanted and (port.get("protocol") or "TCP") == protocol:
                return int(port["containerPort"])
    return 0


def _endpoint(service: Json, pod: Json) -> Json:
    serving = any(c.get("type") == "Ready" and c.get("status") == "True" for c in list_at(pod, "status", "conditions"))
    terminating = is_deleting(pod)
    published = object_at(service, "spec").get("publishNotReadyAddresses") is True
    endpoint: Json = {
        "addresses": [text_at(pod, "status", "podIP")],
        "conditions": {
            "ready": published or (serving and not terminating),
            "serving": serving,
            "terminating": terminating,
        },
        "nodeName": text_at(pod, "spec", "nodeName"),
        "targetRef": {"kind": "Pod", "name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
    }
    hostname = text_at(pod, "spec", "hostname")
    if hostname and text_at(pod, "spec", "subdomain") == name(service):
        endpoint["hostname"] = hostname
    return endpoint


def _slice(service: Json, ports: list[Json], endpoints: list[Json], key: str) -> Json:
    digest = hashlib.sha256(f"{uid(service)}/{key}".encode()).hexdigest()[:10]
    marks = {**labels(service), SERVICE_LABEL: name(service), MANAGED_LABEL: MANAGER}
    if text_at(service, "spec", "clusterIP") == "None":
        marks[HEADLESS_LABEL] = ""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name(service)}-{digest}",
            "namespace": namespace(service),
            "labels": marks,
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": name(service),
                    "uid": uid(service),
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": ports,
    }

"""Where a Service of the API is reached from this machine, and HTTPS to it with the bundle that was stated.

There is no cluster network: a Service is resolved by its external name, or by the addresses in its EndpointSlices
and Endpoints.
"""

import base64
import binascii
import ssl
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from anyvisor.embedded.apiserver.state import State
from anyvisor.embedded.apiserver.values import lookup, objects_at

Json = dict[str, Any]


class UnreachableError(Exception):
    """A backend cannot be called; the message says why."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A backend: where to connect, and the name that its certificate must have."""

    host: str
    port: int
    server_name: str


def resolve(state: State, namespace: str, name: str, port: int) -> Endpoint:
    """Return where a Service's port is served. Raises UnreachableError."""
    entry = state.collection("services").entries.get((namespace, name))
    if entry is None:
        raise UnreachableError(f"service {namespace}/{name} does not exist")
    service = entry.object()
    server_name = f"{name}.{namespace}.svc"
    external = lookup(service, ("spec", "externalName"))
    if external:
        return Endpoint(str(external), port, server_name)
    target = _target_port(service, port)
    for slice_entry in state.collection("discovery.k8s.io/endpointslices").range(namespace):
        if slice_entry.labels.get("kubernetes.io/service-name") == name:
            for endpoint in objects_at(slice_entry.object(), "endpoints"):
                if lookup(endpoint, ("conditions", "ready")) is not False and endpoint.get("addresses"):
                    return Endpoint(str(endpoint["addresses"][0]), target, server_name)
    endpoints = state.collection("endpoints").entries.get((namespace, name))
    for subset in objects_at(endpoints.object(), "subsets") if endpoints is not None else ():
        for address in objects_at(subset, "addresses"):
            return Endpoint(str(address.get("ip")), target, server_name)
    raise UnreachableError(f"service {namespace}/{name} has no external name and no ready endpoint")


def _target_port(service: Json, port: int) -> int:
    for item in objects_at(service, "spec", "ports"):
        if item.get("port") == port and isinstance(item.get("targetPort"), int):
            return int(item["targetPort"])
    return port


@lru_cache(maxsize=64)
def tls_context(bundle: str, certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Return a client context that trusts the base64 `bundle` (or the machine's roots when it is empty).

    Raises UnreachableError when the bundle is no certificate.
    """
    try:
        roots = base64.b64decode(bundle, validate=True).decode("ascii") if bundle else None
        context = ssl.create_default_context(cadata=roots)
        if certificate:
            context.load_cert_chain(certificate, key)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError, OSError) as error:
        raise UnreachableError(f"the caBundle cannot be used: {error}") from error
    return context

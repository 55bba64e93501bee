"""What a kubelet puts into a pod's volumes of Secrets, ConfigMaps and the pod's own fields: pure.

https://kubernetes.io/docs/concepts/storage/projected-volumes/
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from anyvisor.api.meta import Json, annotations, labels, list_at, name, namespace, object_at, text_at, uid
from anyvisor.api.quantity import QuantityError, parse_quantity

MAX_BYTES: Final = 32 * 1024 * 1024
"""What all projected volumes of one pod may hold together."""
SECRET: Final = "Secret"  # noqa: S105 - a kind
CONFIG_MAP: Final = "ConfigMap"
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class ProjectionError(Exception):
    """A volume cannot be filled; the message is a sentence for the pod and names what is missing."""


def of_object(volume: str, kind: str, found: Json | None, source: Json) -> dict[str, bytes]:
    """The files of a `secret` or `configMap` volume; `found` is the object, None when there is none."""
    wanted = text_at(source, "secretName") or text_at(source, "name")
    if found is None:
        if source.get("optional") is True:
            return {}
        raise ProjectionError(f"volume {volume!r} waits for {kind} {wanted!r}, which does not exist; create it")
    content = _content(kind, found)
    items = list_at(source, "items")
    if not items:
        return {_relative(volume, key): data for key, data in content.items()}
    files: dict[str, bytes] = {}
    for item in items:
        key = text_at(item, "key")
        if key in content:
            files[_relative(volume, text_at(item, "path"))] = content[key]
        elif source.get("optional") is not True:
            raise ProjectionError(f"volume {volume!r} waits for key {key!r} of {kind} {wanted!r}; add it")
    return files


def _content(kind: str, found: Json) -> dict[str, bytes]:
    """Data of either kind: a Secret's `data` and a ConfigMap's `binaryData` are base64, a ConfigMap's `data` text."""
    if kind == SECRET:
        return {key: _decoded(key, value) for key, value in object_at(found, "data").items()}
    content = {key: _decoded(key, value) for key, value in object_at(found, "binaryData").items()}
    return content | {key: str(value).encode() for key, value in object_at(found, "data").items()}


def _decoded(key: str, value: object) -> bytes:
    try:
        return base64.b64decode(str(value or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProjectionError(f"key {key!r} is no base64: {error}") from error


def _relative(volume: str, path: str) -> str:
    """A path inside the volume, as Kubernetes requires it."""
    steps = path.split("/")
    if not path or "\0" in path or any(step in ("", ".", "..") for step in steps) or steps[0].startswith(".."):
        raise ProjectionError(f"volume {volume!r} has a file at {path[:80]!r}, which is no path inside it")
    return path


def of_pod(volume: str, pod: Json, source: Json) -> dict[str, bytes]:
    """The files of a `downwardAPI` volume."""
    files: dict[str, bytes] = {}
    for item in list_at(source, "items"):
        path = _relative(volume, text_at(item, "path"))
        if "resourceFieldRef" in item:
            files[path] = _resource(volume, pod, object_at(item, "resourceFieldRef")).encode()
        else:
            files[path] = _field(volume, pod, text_at(item, "fieldRef", "fieldPath")).encode()
    return files


def _field(volume: str, pod: Json, path: str) -> str:
    keyed = _KEYED.fullmatch(path)
    if keyed:
        return {"labels": labels, "annotations": annotations}[keyed[1]](pod).get(keyed[2], "")
    match path:
        case "metadata.name":
            return name(pod)
        case "metadata.namespace":
            return namespace(pod)
        case "metadata.uid":
            return uid(pod)
        case "metadata.labels":
            return _lines(labels(pod))
        case "metadata.annotations":
            return _lines(annotations(pod))
        case _:
            raise ProjectionError(
                f"volume {volume!r} asks for the field {path[:80]!r}; use metadata.name, namespace, uid, labels or "
                "annotations"
            )


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(values.items()))


def _resource(volume: str, pod: Json, reference: Json) -> str:
    wanted, resource = text_at(reference, "containerName"), text_at(reference, "resource")
    kind, _, what = resource.partition(".")
    containers = list_at(pod, "spec", "containers")
    found = next((one for one in containers if not wanted or one.get("name") == wanted), None)
    if found is None or kind not in ("limits", "requests") or not what:
        raise ProjectionError(
            f"volume {volume!r} asks for {resource[:80]!r} of container {wanted[:80]!r}; use limits.cpu, "
            "limits.memory, requests.cpu or requests.memory of container compute"
        )
    resources = object_at(found, "resources")
    amount = object_at(resources, kind).get(what) or object_at(resources, "requests").get(what) or "0"
    try:
        divisor = parse_quantity(reference.get("divisor") or "1").exact or Fraction(1)
        return str(math.ceil(parse_quantity(amount).exact / divisor))
    except QuantityError as error:
        raise ProjectionError(f"volume {volume!r}: {resource} is no quantity: {error}") from error


def service_account(token: str, certificate: bytes, space: str) -> dict[str, bytes]:
    """What every container with a token has at /var/run/secrets/kubernetes.io/serviceaccount."""
    return {"token": token.encode(), "ca.crt": certificate, "namespace": space.encode()}


def check_size(volumes: Mapping[str, Mapping[str, bytes]]) -> int:
    """How many bytes all volumes hold; raises ProjectionError where that is too much."""
    total = sum(len(content) for files in volumes.values() for content in files.values())
    if total > MAX_BYTES:
        raise ProjectionError(f"the pod's Secrets and ConfigMaps hold {total} bytes, of at most {MAX_BYTES}")
    return total

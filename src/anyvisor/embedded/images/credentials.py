"""Credentials for registries out of image pull secrets, as one file in the format that container tools read.

https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from anyvisor.api.meta import Json, object_at, text_at

KEYS: Final = {
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/dockercfg": ".dockercfg",
}


class CredentialsError(Exception):
    """A secret that holds no credentials for a registry; the message names it and says why."""


def merged(secrets: Iterable[Json]) -> bytes:
    """The auth file of all secrets; where two know a registry, the first one counts.

    Raises:
        CredentialsError: one of them cannot be read.
    """
    auths: dict[str, Any] = {}
    for secret in secrets:
        for registry, entry in _auths(secret).items():
            auths.setdefault(registry, entry)
    return json.dumps({"auths": auths}).encode()


def _auths(secret: Json) -> Mapping[str, Any]:
    name = text_at(secret, "metadata", "name")
    key = KEYS.get(text_at(secret, "type"))
    if key is None:
        raise CredentialsError(f"secret {name} is of type {text_at(secret, 'type')!r}, not one of {sorted(KEYS)}")
    try:
        document: Any = json.loads(base64.b64decode(object_at(secret, "data")[key], validate=True))
    except KeyError as error:
        raise CredentialsError(f"secret {name} has no {key}") from error
    except (binascii.Error, ValueError, TypeError) as error:
        raise CredentialsError(f"{key} of secret {name} cannot be read: {error}") from error
    if key == ".dockerconfigjson" and isinstance(document, dict):
        document = cast("dict[str, Any]", document).get("auths")
    if not isinstance(document, dict):
        raise CredentialsError(f"{key} of secret {name} holds no credentials")
    # Tools key by the host; files also name it as an address.
    entries = cast("dict[str, Any]", document).items()
    return {_host(registry): _entry(cast("dict[str, Any]", one)) for registry, one in entries if isinstance(one, dict)}


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    """Secrets may name user and password apart; container tools read them joined only."""
    if "auth" in entry or "username" not in entry:
        return entry
    joined = f"{entry['username']}:{entry.get('password', '')}"
    return {**entry, "auth": base64.b64encode(joined.encode()).decode()}


def _host(registry: str) -> str:
    bare = registry.split("://", 1)[-1].rstrip("/")
    if bare in ("index.docker.io/v1", "index.docker.io"):
        return "docker.io"
    return bare

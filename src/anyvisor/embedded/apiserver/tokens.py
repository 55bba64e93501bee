"""ServiceAccount tokens: signed, bound, expiring (TokenRequest), as JSON web tokens with HMAC-SHA256."""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from anyvisor.embedded.apiserver.identity import Identity

Json = dict[str, Any]

ISSUER = "https://kubernetes.default.svc"
AUDIENCE = ISSUER
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
MAX_TOKEN = 16 << 10
KEY_BYTES = 32


def load_key(path: Path) -> bytes:
    """Read the signing key, or make one with mode 0600."""
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = secrets.token_bytes(KEY_BYTES)
        path.touch(mode=0o600)
        path.write_bytes(key)
    if len(key) < KEY_BYTES:
        raise ValueError(f"the signing key {path} is damaged; remove it (issued tokens then end) and start again")
    return key


def _part(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")


def _unpart(value: bytes) -> bytes:
    return base64.urlsafe_b64decode(value + b"=" * (-len(value) % 4))


BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
"""Kinds of objects whose life a token may share, and the collections that hold them."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The object whose life a token shares."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Claims:
    """What a valid token says."""

    namespace: str
    account: str
    uid: str
    audiences: tuple[str, ...]
    expires: int
    token_id: str
    bound: Bound | None = None
    node: Bound | None = None
    """The node of the pod that it is bound to, at the time of its issue: told, and not looked up again."""


class Tokens:
    """Issues and checks tokens with one key."""

    def __init__(self, key: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock

    def issue(
        self,
        namespace: str,
        account: str,
        uid: str,
        audiences: Sequence[str],
        seconds: int,
        bound: Bound | None = None,
        node: Bound | None = None,
    ) -> tuple[str, int]:
        """Return a token and when it expires (seconds since the epoch)."""
        now = int(self._clock())
        expires = now + seconds
        kubernetes: Json = {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}}
        for one in (bound, node):
            if one is not None:
                kubernetes[one.kind.lower()] = {"name": one.name, "uid": one.uid}
        payload: Json = {
            "aud": list(audiences),
            "exp": expires,
            "iat": now,
            "nbf": now,
            "iss": ISSUER,
            "jti": secrets.token_hex(16),
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": kubernetes,
        }
        head = _part(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        body = head + b"." + _part(msgspec.json.encode(payload))
        return (body + b"." + _part(self._sign(body))).decode(), expires

    def check(self, token: str) -> Claims | None:
        """Return what a token says; None when it is no valid token of ours."""
        if len(token) > MAX_TOKEN or not token.isascii() or token.count(".") != 2:
            return None
        body, _, signature = token.encode().rpartition(b".")
        try:
            if not hmac.compare_digest(_unpart(signature), self._sign(body)):
                return None
            payload: Json = msgspec.json.decode(_unpart(body.partition(b".")[2]))
        except (ValueError, msgspec.DecodeError):
            return None
        if payload.get("exp", 0) <= self._clock():
            return None
        kubernetes: Mapping[str, Any] = payload["kubernetes.io"]
        told = [Bound(kind, **kubernetes[kind.lower()]) for kind in BINDABLE if kind.lower() in kubernetes]
        return Claims(
            kubernetes["namespace"],
            kubernetes["serviceaccount"]["name"],
            kubernetes["serviceaccount"]["uid"],
            tuple(payload["aud"]),
            payload["exp"],
            payload["jti"],
            *told[:2],
        )

    def _sign(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, hashlib.sha256)


def identity_of(claims: Claims) -> Identity:
    """Return the user that a token stands for."""
    extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims.token_id}",)}
    for one in (claims.bound, claims.node):
        if one is not None and one.kind in ("Pod", "Node"):
            extra[f"authentication.kubernetes.io/{one.kind.lower()}-name"] = (one.name,)
            extra[f"authentication.kubernetes.io/{one.kind.lower()}-uid"] = (one.uid,)
    return Identity(
        f"system:serviceaccount:{claims.namespace}:{claims.account}",
        ("system:serviceaccounts", f"system:serviceaccounts:{claims.namespace}"),
        claims.uid,
        extra,
    ).with_authenticated()

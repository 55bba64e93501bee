"""Who asks an aggregated API, and whether they may: told by the API server's proxy, asked of the API server.

https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
"""

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from anyvisor.api.meta import Json, object_at
from anyvisor.kube.client import Client
from anyvisor.kube.resources import SUBJECT_ACCESS_REVIEWS

REMEMBERED_SECONDS: Final = 10.0
REMEMBERED: Final = 4096
_VERBS: Final[Mapping[str, str]] = {
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "POST": "create",
    "PATCH": "patch",
    "DELETE": "delete",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The user on whose behalf the API server's proxy sends a request."""

    user: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Proxy:
    """How the proxy proves itself and names the user: the ConfigMap `extension-apiserver-authentication`."""

    authority: str = ""
    """PEM; the client certificate is by this authority."""
    names: tuple[str, ...] = ()
    """Common names that may speak for others; none = any of the authority's."""
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)

    def caller(self, common_name: str, headers: CIMultiDictProxy[str]) -> Caller | None:
        """The user, where a client of that (verified) name may name one; else None."""
        if not common_name or (self.names and common_name not in self.names):
            return None
        user = _first(headers, self.user_headers)
        if not user:
            return None
        groups = tuple(group for name in self.group_headers for group in headers.getall(name, ()))
        extra: dict[str, tuple[str, ...]] = {}
        for name in headers:
            for prefix in self.extra_prefixes:
                if name.lower().startswith(prefix.lower()):
                    extra[unquote(name[len(prefix) :]).lower()] = tuple(headers.getall(name))
        return Caller(user, groups, extra, _first(headers, self.uid_headers))


def _first(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> str:
    return next((headers[name] for name in names if headers.get(name)), "")


@dataclass(frozen=True, slots=True)
class Attributes:
    """What authorization is asked about a request."""

    verb: str
    group: str
    version: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def attributes(method: str, path: str) -> Attributes | None:
    """What a request to a group version is about; None for discovery, which everybody may read.

    The whole rest of the path is the subresource, but a port is no part of it: rules name `portforward`.
    """
    verb = _VERBS.get(method.upper(), method.lower())
    match [unquote(part) for part in path.strip("/").split("/")]:
        case ["apis", group, version, "namespaces", namespace, resource]:
            return Attributes(verb, group, version, resource, namespace=namespace)
        case ["apis", group, version, "namespaces", namespace, resource, name, *rest]:
            subresource = "portforward" if rest[:1] == ["portforward"] else "/".join(rest)
            return Attributes(verb, group, version, resource, subresource, namespace, name)
        case ["apis", group, version, resource, *_]:
            return Attributes(verb, group, version, resource)
        case _:
            return None


class Authorizer:
    """Asks the API server by SubjectAccessReview; an answer holds for a few seconds."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answers: OrderedDict[object, tuple[float, str]] = OrderedDict()

    async def refusal(self, caller: Caller, wanted: Attributes) -> str:
        """Why the caller may not; empty when they may. Raises ApiError when the API server cannot be asked."""
        key = (caller.user, caller.uid, caller.groups, tuple(sorted(caller.extra.items())), wanted)
        known = self._answers.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        answer = await self._ask(caller, wanted)
        self._answers[key] = time.monotonic() + REMEMBERED_SECONDS, answer
        self._answers.move_to_end(key)
        while len(self._answers) > REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    async def _ask(self, caller: Caller, wanted: Attributes) -> str:
        asked: Json = {
            "spec": {
                "user": caller.user,
                "groups": list(caller.groups),
                "extra": {key: list(values) for key, values in caller.extra.items()},
                "uid": caller.uid,
                "resourceAttributes": {
                    "verb": wanted.verb,
                    "group": wanted.group,
                    "version": wanted.version,
                    "resource": wanted.resource,
                    "subresource": wanted.subresource,
                    "namespace": wanted.namespace,
                    "name": wanted.name,
                },
            }
        }
        status = object_at(await self._client.create(SUBJECT_ACCESS_REVIEWS, asked), "status")
        if status.get("allowed") is True:
            return ""
        return str(status.get("reason") or "no rule allows it")

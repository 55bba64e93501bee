"""The kinds that are asked, not stored: who am I, may I, may they, whose token is this."""

from collections.abc import Callable
from typing import Any

from anyvisor.embedded.apiserver import status as st
from anyvisor.embedded.apiserver.identity import ApiResponse, Identity
from anyvisor.embedded.apiserver.objects import Ask
from anyvisor.embedded.apiserver.rbac import Attributes, Authorizer
from anyvisor.embedded.apiserver.respond import json_response
from anyvisor.embedded.apiserver.status import StatusError
from anyvisor.embedded.apiserver.values import as_list, as_object

Json = dict[str, Any]
TokenLookup = Callable[[str], Identity | None]


class Reviews:
    """Answers reviews; `lookup` resolves bearer tokens."""

    def __init__(self, authorizer: Authorizer, lookup: TokenLookup) -> None:
        self._authorizer = authorizer
        self._lookup = lookup

    def serve(self, ask: Ask) -> ApiResponse:
        """Answer the POST of one review."""
        resource = ask.resource
        if ask.verb != "create":
            raise st.method_not_allowed()
        body = ask.object_body()
        spec: Json = body.get("spec") or {}
        body["apiVersion"], body["kind"] = resource.api_version, resource.kind
        body.setdefault("metadata", {})
        body["status"] = self._status(ask, spec)
        return json_response(body, 201)

    def _status(self, ask: Ask, spec: Json) -> Json:
        identity = ask.request.identity
        match ask.resource.kind:
            case "SelfSubjectReview":
                return {"userInfo": user_info(identity)}
            case "SelfSubjectAccessReview":
                return self._access(identity, spec)
            case "SubjectAccessReview" | "LocalSubjectAccessReview":
                return self._access(_subject(spec), spec)
            case "SelfSubjectRulesReview":
                return self._rules(identity, str(spec.get("namespace") or ""))
            case _:
                return self._token(str(spec.get("token") or ""))

    def _access(self, identity: Identity, spec: Json) -> Json:
        asked = asked_attributes(spec)
        allowed = self._authorizer.allowed(identity, asked)
        return {"allowed": allowed}

    def _rules(self, identity: Identity, namespace: str) -> Json:
        resources: list[Json] = []
        paths: list[Json] = []
        if "system:masters" in identity.groups:
            resources.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
            paths.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
        for rule in self._authorizer.rules(identity):
            if rule.namespace not in ("", namespace):
                continue
            if rule.urls:
                paths.append({"verbs": sorted(rule.verbs), "nonResourceURLs": sorted(rule.urls)})
            else:
                entry: Json = {
                    "verbs": sorted(rule.verbs),
                    "apiGroups": sorted(rule.groups),
                    "resources": sorted(rule.resources),
                }
                if rule.names:
                    entry["resourceNames"] = sorted(rule.names)
                resources.append(entry)
        return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}

    def _token(self, token: str) -> Json:
        identity = self._lookup(token)
        if identity is None:
            return {"authenticated": False, "error": "the token is unknown, expired or not of this server"}
        return {"authenticated": True, "user": user_info(identity)}


def user_info(identity: Identity) -> Json:
    """Return the UserInfo object of an identity."""
    info: Json = {"username": identity.user, "groups": list(identity.groups)}
    if identity.uid:
        info["uid"] = identity.uid
    if identity.extra:
        info["extra"] = {name: list(values) for name, values in identity.extra.items()}
    return info


def _subject(spec: Json) -> Identity:
    user, groups = str(spec.get("user") or ""), tuple(str(item) for item in as_list(spec.get("groups")))
    if not user and not groups:
        raise StatusError(422, "Invalid", "spec.user: Required value: at least one of user or groups must be specified")
    extra = {
        name: tuple(str(item) for item in as_list(values)) for name, values in as_object(spec.get("extra")).items()
    }
    return Identity(user, groups, str(spec.get("uid") or ""), extra)


def asked_attributes(spec: Json) -> Attributes:
    """Return the attributes that an access review asks about."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        raise StatusError(
            422,
            "Invalid",
            "spec: exactly one of resourceAttributes and nonResourceAttributes must be specified",
        )
    if resource is None:
        asked = as_object(path)
        return Attributes(str(asked.get("verb") or ""), path=str(asked.get("path") or ""))
    return Attributes(
        str(resource.get("verb") or ""),
        str(resource.get("group") or ""),
        str(resource.get("resource") or ""),
        str(resource.get("subresource") or ""),
        str(resource.get("namespace") or ""),
        str(resource.get("name") or ""),
    )

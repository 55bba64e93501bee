"""What a request asks for: its path and query parameters, read and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from anyvisor.embedded.apiserver.status import Cause, bad_request, invalid, unsupported_value

Json = dict[str, Any]

OPTIONS_GROUP = "meta.k8s.io"
MAX_PARAMETERS = 64


@dataclass(frozen=True, slots=True)
class Target:
    """The resource that a path names; `resource` is empty for paths such as `/version`."""

    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target:
    """Split a request path as Kubernetes' request-info rules do."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Target(path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (rest[2] in ("status", "finalize") and len(rest) == 3):
        namespace, rest = rest[1], rest[2:]
    resource, name = rest[0], rest[1] if len(rest) > 1 else ""
    return Target(path, group, version, namespace, resource, name, "/".join(rest[2:]))


def parse_query(query: str) -> dict[str, str]:
    """Return the parameters; the last of a repeated one counts."""
    try:
        return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS))
    except ValueError as error:
        raise bad_request(f"a request may have at most {MAX_PARAMETERS} query parameters") from error


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1", "t") or (name in query and query[name] == "")


def number(query: Mapping[str, str], name: str, default: int = 0) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.lstrip("-").isdigit()) or len(text) > 19:
        raise bad_request(f"invalid value {text!r} for the parameter {name}: it must be a number")
    return int(text)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options that create, update and patch share."""

    dry_run: bool = False
    field_manager: str = "unknown"
    field_validation: str = "Warn"
    force: bool = False


def write_options(query: Mapping[str, str], user_agent: str, kind: str) -> WriteOptions:
    """Read the write options, a `kind` such as CreateOptions. Raises a 422 Status for a wrong one."""
    validation = query.get("fieldValidation", "") or "Warn"
    dry = query.get("dryRun", "")
    causes = _dry_run_causes(dry)
    if validation not in ("Strict", "Warn", "Ignore"):
        causes.append(unsupported_value("fieldValidation", f'"{validation}"', ("", "Ignore", "Strict", "Warn")))
    if causes:
        raise invalid(OPTIONS_GROUP, kind, "", causes)
    manager = query.get("fieldManager", "") or user_agent.split("/")[0] or "unknown"
    if len(manager) > 128 or not manager.isprintable():
        raise bad_request("fieldManager must be at most 128 printable characters")
    return WriteOptions(dry == "All", manager, validation, flag(query, "force"))


def _dry_run_causes(value: str) -> list[Cause]:
    return [unsupported_value("dryRun", f'["{value}"]', ("All",))] if value not in ("", "All") else []


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How an object is deleted."""

    dry_run: bool = False
    grace: int | None = None
    propagation: str = ""
    """Background, Foreground, Orphan, or empty for the default."""
    uid: str = ""
    version: str = ""


def delete_options(query: Mapping[str, str], body: Json) -> DeleteOptions:
    """Read the deletion options from body and query. Raises a 400 or 422 Status for a wrong one."""
    conditions: Json = body.get("preconditions") or {}
    grace: Any = body.get("gracePeriodSeconds")
    if grace is None and "gracePeriodSeconds" in query:
        grace = number(query, "gracePeriodSeconds")
    if grace is not None and not isinstance(grace, int):
        raise bad_request("gracePeriodSeconds must be a number")
    if grace is not None and grace < 0:
        grace = 1  # as the API's documentation says of negative ones
    orphan = body.get("orphanDependents")
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy", "")
    if orphan is not None and not propagation:
        propagation = "Orphan" if orphan else "Background"
    runs: Any = body.get("dryRun") or []
    dry = query.get("dryRun", "") or (runs[0] if runs else "")
    causes = _dry_run_causes(dry)
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        supported = ("Foreground", "Background", "Orphan", "nil")
        causes.append(unsupported_value("propagationPolicy", f'"{propagation}"', supported))
    if causes:
        raise invalid(OPTIONS_GROUP, "DeleteOptions", "", causes)
    return DeleteOptions(
        dry == "All",
        grace,
        propagation,
        str(conditions.get("uid") or ""),
        str(conditions.get("resourceVersion") or ""),
    )

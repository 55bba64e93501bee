"""A call on a subresource, read from a request; and its options, read from a hostile body."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote

import msgspec

from anyvisor.api.meta import Json
from anyvisor.gateway.answers import Refused, bad_request, failure

GROUP: Final = "subresources.kubevirt.io"
VERSIONS: Final = ("v1", "v1alpha3")
VMS: Final = "virtualmachines"
VMIS: Final = "virtualmachineinstances"

BODY_LIMIT: Final = 3 * 1024 * 1024
"""Bytes, as the Kubernetes API takes; only an object to expand comes near it."""
DEPTH_LIMIT: Final = 64
PARAMETER_LIMIT: Final = 32


@dataclass(frozen=True, slots=True)
class Call:
    """One call; `verb` is the subresource (`start`, `evacuate/cancel`), `arguments` what its path adds."""

    method: str
    resource: str
    """Plural of the object, or empty for calls on the namespace or the group."""
    namespace: str
    name: str
    verb: str
    arguments: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    upgrade: bool = False
    """The client asks for a websocket."""


def parse_call(method: str, path: str, query: str = "", body: bytes = b"", *, upgrade: bool = False) -> Call:
    """Read the path of a request to our group; raises Refused (404, 400)."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    match parts:
        case ["apis", group, version, "namespaces", namespace, resource, name, *rest] if rest and name:
            verb, arguments = _verb(rest)
        case ["apis", group, version, "namespaces", namespace, verb]:
            resource, name, arguments = "", "", ()
        case ["apis", group, version, verb]:
            namespace, resource, name, arguments = "", "", "", ()
        case _:
            raise _no_such_path()
    if group != GROUP or version not in VERSIONS or not all(map(_is_plain, (namespace, name))):
        raise _no_such_path()
    try:
        parameters = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=PARAMETER_LIMIT))
    except ValueError as error:
        raise bad_request(f"a request may have at most {PARAMETER_LIMIT} query parameters") from error
    if len(body) > BODY_LIMIT:
        raise bad_request(f"the body has more than {BODY_LIMIT} bytes")
    return Call(method, resource, namespace, name, verb, arguments, parameters, body, upgrade)


def _verb(rest: list[str]) -> tuple[str, tuple[str, ...]]:
    if rest[0] == "portforward":
        return rest[0], tuple(rest[1:])
    return "/".join(rest), ()


def _is_plain(name: str) -> bool:
    """Whether a decoded name is one step of a path, as the API server must understand it, too."""
    return "/" not in name and name not in (".", "..")


def _no_such_path() -> Refused:
    return Refused(failure(404, "NotFound", "the server could not find the requested resource"))


def options(call: Call, *, required: bool = False) -> Json:
    """Return the body as an object: JSON or YAML whatever its content type; {} when there is none.

    Raises Refused (400) for anything else, and for no body where one is `required`.
    """
    if not call.body.strip():
        if required:
            raise bad_request(f"{call.verb} needs a body: an object with its options")
        return {}
    value = _decode(call.body)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request("the body must be an object")
    return cast("Json", value)


def _decode(body: bytes) -> object:
    try:
        return cast("object", msgspec.json.decode(body))
    except RecursionError as error:
        raise bad_request("the body is nested too deeply") from error
    except msgspec.DecodeError:
        pass
    from anyvisor.gateway.yaml import YamlError, decode_yaml

    try:
        return decode_yaml(body, DEPTH_LIMIT)
    except YamlError as error:
        raise bad_request(f"the body is neither JSON nor YAML: {error}") from error


def text_option(found: Json, name: str) -> str:
    """Return a string of the options; raises Refused (400) for another type."""
    value: Any = found.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise bad_request(f"{name} must be a string")
    return value


def whole_option(found: Json, name: str) -> int | None:
    """Return a whole number of 64 bits of the options; raises Refused (400) for another type."""
    value: Any = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise bad_request(f"{name} must be a whole number")
    return value


def flag_option(found: Json, name: str) -> bool:
    """Return a boolean of the options; raises Refused (400) for another type."""
    value: Any = found.get(name)
    if value is not None and not isinstance(value, bool):
        raise bad_request(f"{name} must be true or false")
    return bool(value)


def object_option(found: Json, name: str) -> Json | None:
    """Return an object of the options; raises Refused (400) for another type."""
    value: Any = found.get(name)
    if value is not None and not isinstance(value, dict):
        raise bad_request(f"{name} must be an object")
    return cast("Json | None", value)


def dry_run(found: Json) -> bool:
    """Whether nothing shall be kept; raises Refused (400) for what is no dry-run option."""
    value: Any = found.get("dryRun")
    if value in (None, []):
        return False
    if value != ["All"]:
        raise bad_request('dryRun must be ["All"] or absent')
    return True

"""Bodies in and out: JSON, YAML and protobuf in; objects, tables and metadata, as JSON or YAML, out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from anyvisor.embedded.apiserver import protobuf
from anyvisor.embedded.apiserver.status import bad_request, not_acceptable, too_large, unsupported_media

Json = dict[str, Any]

MAX_BODY = 3 << 20
MAX_DEPTH = 128
JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

decode_json = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder().encode


def media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", JSON).partition(";")[0].strip().lower() or JSON


def read_body(body: bytes, kind: str) -> Any:
    """Decode a body of any accepted type. Raises a 400, 413 or 415 Status."""
    if len(body) > MAX_BODY:
        raise too_large("the request body", MAX_BODY)
    if kind in (JSON, "application/json-patch+json", "application/merge-patch+json",
                "application/strategic-merge-patch+json"):  # fmt: skip
        value = _json(body)
    elif kind in (YAML, "application/x-yaml", "text/yaml", "application/apply-patch+yaml"):
        value = _json(body) if body.lstrip()[:1] == b"{" else read_yaml(body)
    elif kind == PROTOBUF:
        try:
            value = protobuf.decode(body)
        except protobuf.ProtobufError as error:
            raise bad_request(f"cannot read the protobuf body: {error}") from error
    else:
        raise unsupported_media((JSON, YAML, PROTOBUF))
    is_json = body.lstrip()[:1] in (b"{", b"[")
    flat = is_json and body.count(b"{") + body.count(b"[") <= MAX_DEPTH
    if not flat and _deeper_than(value, MAX_DEPTH):
        raise bad_request(f"the body is nested deeper than {MAX_DEPTH} levels")
    return value


def _json(body: bytes) -> Any:
    try:
        return decode_json(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"cannot read the JSON body: {error}") from error


def read_yaml(body: bytes) -> Any:
    """Decode one YAML document. Aliases are refused, since they can grow without bound."""
    import yaml

    try:
        text = body.decode()
        for token in yaml.scan(text, Loader=yaml.CSafeLoader):
            if isinstance(token, yaml.AliasToken):
                raise bad_request("YAML aliases are not accepted; write the value out")
        return _as_json(yaml.load(text, Loader=_yaml_loader()))  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"cannot read the YAML body: {error}") from error


def _as_json(value: Any) -> Any:
    """Turn what YAML can say into what JSON can: keys become strings, other types are refused."""
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value)
        return {_key(key): _as_json(item) for key, item in pairs.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in cast("list[Any]", value)]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise bad_request(f"the YAML body holds a {type(value).__name__}, which JSON cannot say; write it as a string")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return key if isinstance(key, str) else str(key)


def _yaml_loader() -> Any:
    import yaml

    class Loader(yaml.CSafeLoader):
        """A loader that leaves timestamps as text, as JSON has no dates."""

    Loader.yaml_implicit_resolvers = {
        key: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:timestamp"]
        for key, pairs in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


def _deeper_than(value: Any, levels: int) -> bool:
    layer: list[Any] = [value]
    for _ in range(levels):
        below: list[Any] = []
        for item in layer:
            if item.__class__ is dict:
                below.extend(v for v in cast("Json", item).values() if v.__class__ is dict or v.__class__ is list)
            elif item.__class__ is list:
                below.extend(v for v in cast("list[Any]", item) if v.__class__ is dict or v.__class__ is list)
        if not below:
            return False
        layer = below
    return True


def to_yaml(obj: Any) -> bytes:
    """Encode as YAML."""
    import yaml

    dump: Any = getattr(yaml, "dump")  # noqa: B009 - the stubs leave its type open
    text: str = dump(obj, Dumper=yaml.CSafeDumper, default_flow_style=False, sort_keys=False, allow_unicode=True)
    return text.encode()


@dataclass(frozen=True, slots=True)
class Output:
    """The representation that a client accepts."""

    shape: str = "object"
    """`object`, `table` or `metadata`."""
    yaml: bool = False
    version: str = "v1"

    @property
    def content_type(self) -> str:
        return YAML if self.yaml else JSON


OBJECT = Output()


def _parameters(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in text.split(";"):
        name, _, value = item.strip().partition("=")
        found[name] = value
    return found


def negotiate(accept: str) -> Output:
    """Choose the first representation of an Accept header that we serve. Raises a 406 Status when there is none."""
    if not accept or accept == JSON:
        return OBJECT
    for option in accept.split(","):
        kind, _, rest = option.strip().partition(";")
        parameters = _parameters(rest)
        if kind not in (JSON, YAML, "*/*", "application/*"):
            continue
        shape = parameters.get("as", "")
        if shape == "Table" and parameters.get("g") == "meta.k8s.io":
            return Output("table", kind == YAML, parameters.get("v", "v1"))
        if shape in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Output("metadata", kind == YAML, parameters.get("v", "v1"))
        if shape:
            continue
        return Output("object", kind == YAML)
    raise not_acceptable((JSON, YAML))

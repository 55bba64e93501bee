"""Objects of a kind as hypothesis strategies, made from the schema of its definition."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from anyvisor.admission.values import mapping
from anyvisor.api.crd import crds

Json = dict[str, Any]

NAMES = st.sampled_from(["a", "b", "root", "default", "x" * 64, "No", "", "a.b", "\x00", "é"])
QUANTITIES = st.sampled_from(["1Gi", "128Mi", "2", "0", "-1", "100m", "1e3", "9" * 40, "lots", "1M", 3, 1.5])
TEXTS = NAMES | st.sampled_from(
    [
        "virtio",
        "sata",
        "scsi",
        "usb",
        "q35",
        "host-model",
        "amd64",
        "arm64",
        "s390x",
        "Always",
        "Exists",
        "In",
        "Paused",
    ]
)
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@cache
def schema(kind: str) -> Json:
    """The structural schema of a kind."""
    definition = next(one for one in crds() if one["spec"]["names"]["kind"] == kind)
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def values(of: Json, *, junk: bool) -> st.SearchStrategy[Any]:
    """Values of a schema; with `junk`, sometimes anything else in its place."""
    made = st.deferred(lambda: _values(of, junk=junk))
    return st.one_of(made, made, made, made, made, JUNK) if junk else made


def _values(of: Json, *, junk: bool) -> st.SearchStrategy[Any]:
    if of.get("x-kubernetes-int-or-string"):
        return QUANTITIES
    if "enum" in of:
        return st.sampled_from(of["enum"])
    match of.get("type"):
        case "string":
            return TEXTS
        case "integer":
            return st.sampled_from([0, 1, 2, 3, 224, 512, 4096, 65536, -1, 2**31, 2**63])
        case "number":
            return st.floats(allow_nan=False)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(values(mapping(of.get("items")), junk=junk), max_size=2)
        case _:
            return _objects(of, junk=junk)


def _objects(of: Json, *, junk: bool) -> st.SearchStrategy[Json]:
    fields: Json = of.get("properties") or {}
    if not fields:
        inner = mapping(of.get("additionalProperties"))
        member = values(inner, junk=junk) if inner else TEXTS
        return st.dictionaries(TEXTS, member, max_size=2)
    required = {name: values(fields[name], junk=junk) for name in of.get("required") or () if not junk}
    optional = [name for name in fields if name not in required]

    @st.composite
    def built(draw: st.DrawFn) -> Json:
        chosen = draw(st.lists(st.sampled_from(optional), max_size=4, unique=True)) if optional else []
        obj = {name: draw(strategy) for name, strategy in required.items()}
        return obj | {name: draw(values(fields[name], junk=junk)) for name in chosen}

    return built()


def objects(kind: str, *, junk: bool = False) -> st.SearchStrategy[Json]:
    """Whole objects of a kind."""
    properties = schema(kind)["properties"]

    def assemble(parts: tuple[Any, Any, Any]) -> Json:
        spec, status, labels = parts
        metadata = {"name": "x", "namespace": "default", "labels": labels}
        return {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": spec, "status": status}

    spec = values(properties["spec"], junk=junk)
    status = values(mapping(properties.get("status")), junk=junk)
    return st.tuples(spec, status, st.dictionaries(TEXTS, TEXTS, max_size=2)).map(assemble)

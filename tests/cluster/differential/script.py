"""Seeded random scripts of API requests, as data: the same steps run against any number of servers.

A step never names a uid or resourceVersion of one server; where it needs what a server has, it says so and the runner
fills it in (`base`, `$uid`, `$rv`).
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Json = dict[str, Any]

STEPS = 120
RECORDED = range(6)
"""The seeds whose answers are kept in tests/data."""
GROUP = "differential.anyvisor.io"
JSON = "application/json"
PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


def recording(seed: int) -> Path:
    """Return the file of the official server's answers to a script, normalized."""
    return Path(__file__).parents[2] / "data" / "apiserver" / f"answers-{seed}.json.gz"


@dataclass(frozen=True, slots=True)
class Step:
    """One request. With `base`, the body is a merge patch on what the server itself has at that path."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    base: str = ""

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.query.items())
        on = f" on {self.base}" if self.base else ""
        return f"{self.method} {self.path}?{query} [{self.content_type}]{on} {self.body}"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that scripts use, and how its objects are made up."""

    root: str
    plural: str
    kind: str
    make: Callable[[random.Random], Json]
    custom: bool = False

    @property
    def api_version(self) -> str:
        return self.root.removeprefix("/apis/").removeprefix("/api/")


def _some(rng: random.Random, fields: Mapping[str, Callable[[], Any]], chance: float = 0.5) -> Json:
    return {name: make() for name, make in fields.items() if rng.random() < chance}


def _config_map(rng: random.Random) -> Json:
    return _some(
        rng,
        {
            "data": lambda: _some(rng, {key: lambda: rng.choice(("1", "2", "three")) for key in "abc"}),
            "binaryData": lambda: {"z": rng.choice(("AAE=", "/w=="))},
            "immutable": lambda: rng.choice((False, False, False, None)),
        },
    )


def _secret(rng: random.Random) -> Json:
    return _some(
        rng,
        {
            "data": lambda: _some(rng, {key: lambda: rng.choice(("YQ==", "Yg==")) for key in "ab"}),
            "type": lambda: rng.choice(("Opaque", "example.com/own")),
        },
    )


def _service(rng: random.Random) -> Json:
    def port(number: int) -> Json:
        return {"name": f"p{number}", "port": number, **_some(rng, {"targetPort": lambda: rng.choice((8080, "http"))})}

    ports = [port(number) for number in rng.sample((80, 443, 8443), rng.randint(1, 3))]
    return {"spec": {"clusterIP": "None", "ipFamilyPolicy": "SingleStack", "ports": ports}}


def _lease(rng: random.Random) -> Json:
    return {
        "spec": _some(
            rng,
            {
                "holderIdentity": lambda: rng.choice(("one", "two", "")),
                "leaseDurationSeconds": lambda: rng.choice((15, 30, 0)),
                "renewTime": lambda: "2026-01-02T03:04:05.000006Z",
                "leaseTransitions": lambda: rng.choice((0, 1)),
            },
        )
    }


def _role(rng: random.Random) -> Json:
    def rule() -> Json:
        return {
            "apiGroups": rng.sample(["", "apps", GROUP], rng.randint(1, 2)),
            "resources": rng.sample(["pods", "machines", "configmaps"], rng.randint(1, 2)),
            "verbs": rng.sample(["get", "list", "*"], rng.randint(0, 2)),
        }

    return {"rules": [rule() for _ in range(rng.randint(1, 2))]}


def _account(rng: random.Random) -> Json:
    return _some(
        rng,
        {
            "automountServiceAccountToken": lambda: rng.choice((True, False)),
            "secrets": lambda: [{"name": name} for name in rng.sample("xyz", rng.randint(1, 2))],
            "imagePullSecrets": lambda: [{"name": "pull"}],
        },
    )


def _disk(rng: random.Random, name: str) -> Json:
    return {
        "name": name,
        **_some(rng, {"size": lambda: rng.choice((1, 2, 0)), "labels": lambda: {"k": rng.choice("ab")}}),
    }


def _machine(rng: random.Random) -> Json:
    spec = _some(
        rng,
        {
            "cores": lambda: rng.choice((1, 2, 4, 8, 64, 0, 65)),
            "max": lambda: rng.choice((4, 64)),
            "mode": lambda: rng.choice(("fast", "slow", "fast", "slow", "warp")),
            "memory": lambda: rng.choice((1, "1Gi", "x", True)),
            "ratio": lambda: rng.choice((0.5, 1, 2.25, -1)),
            "enabled": lambda: rng.choice((True, False, None)),
            "disks": lambda: [_disk(rng, name) for name in rng.sample(["a", "b", "c"], rng.randint(0, 3))],
            "tags": lambda: rng.sample(["s", "t", "u"], rng.randint(0, 3)),
            "args": lambda: rng.choices(["-a", "-b"], k=rng.randint(0, 2)),
            "free": lambda: {"any": {"thing": rng.randint(0, 2)}, "n": rng.choice((None, 1))},
            "limits": lambda: _some(rng, {"cpu": lambda: rng.choice((1, "500m")), "gpu": lambda: 1}),
            "point": lambda: _some(rng, {"x": lambda: rng.randint(0, 2), "y": lambda: rng.randint(0, 2)}),
            "name": lambda: rng.choice(("abc", "ABC", "toolongname", "")),
            "when": lambda: rng.choice(("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", "today")),
            "fixed": lambda: rng.choice(("one", "one", "two")),
            "unknown": lambda: 1,
        },
        0.25,
    )
    return {"spec": spec, **_some(rng, {"status": lambda: {"phase": "Sent"}}, 0.1)}


KINDS = (
    Kind("/api/v1", "configmaps", "ConfigMap", _config_map),
    Kind("/api/v1", "secrets", "Secret", _secret),
    Kind("/api/v1", "services", "Service", _service),
    Kind("/api/v1", "serviceaccounts", "ServiceAccount", _account),
    Kind("/apis/coordination.k8s.io/v1", "leases", "Lease", _lease),
    Kind("/apis/rbac.authorization.k8s.io/v1", "roles", "Role", _role),
    Kind(f"/apis/{GROUP}/v1", "machines", "Machine", _machine, custom=True),
    Kind(f"/apis/{GROUP}/v1", "machines", "Machine", _machine, custom=True),
    Kind(f"/apis/{GROUP}/v1", "machines", "Machine", _machine, custom=True),
)
NAMES = ("a", "b", "c")
SELECTORS = (
    "app", "!app", "app=a", "app!=a", "app in (a, b)", "app notin (b)", "app==a,tier", "tier>1", "tier<2",
    "app=a,app=b",
    "app in ()", "=a", "app=a b", "-x=1", "a/b/c=1", "app in (a", "",
)  # fmt: skip
FIELDS = (
    "metadata.name=a",
    "metadata.name!=a",
    "metadata.namespace=default",
    "spec.mode=slow",
    "metadata.name=a,metadata.name=b",
)


class Script:
    """Makes the steps of one seed, all in one namespace."""

    def __init__(self, seed: int, namespace: str) -> None:
        self._rng = random.Random(seed)
        self._namespace = namespace
        self._actions: list[tuple[int, Callable[[Kind, str], Step]]] = [
            (6, self._create), (3, self._replace), (3, self._merge), (2, self._json), (2, self._strategic),
            (7, self._apply), (3, self._status), (2, self._delete), (1, self._delete_many), (2, self._get),
            (3, self._list), (1, self._wrong),
        ]  # fmt: skip

    def steps(self, count: int) -> list[Step]:
        """Return the steps."""
        weights = [weight for weight, _ in self._actions]
        made: list[Step] = []
        for _ in range(count):
            _, action = self._rng.choices(self._actions, weights)[0]
            made.append(action(self._rng.choice(KINDS), self._rng.choice(NAMES)))
        return made

    # -- parts ------------------------------------------------------------------------------------------------

    def _path(self, kind: Kind, name: str = "", subresource: str = "") -> str:
        parts = [kind.root, "namespaces", self._namespace, kind.plural, name, subresource]
        return "/".join(part for part in parts if part)

    def _options(self, *, manager: bool = True) -> dict[str, str]:
        rng = self._rng
        options = _some(rng, {"dryRun": lambda: rng.choice(("All", "All", "Some"))}, 0.1)
        options |= _some(rng, {"fieldValidation": lambda: rng.choice(("Strict", "Warn", "Ignore", "Odd"))}, 0.3)
        if manager:
            options["fieldManager"] = rng.choice(("one", "two", "three"))
        return options

    def _metadata(self, name: str) -> Json:
        rng = self._rng
        return {
            "name": name,
            **_some(
                rng,
                {
                    "labels": lambda: _some(rng, {"app": lambda: rng.choice("ab"), "tier": lambda: rng.choice("123")}),
                    "annotations": lambda: _some(rng, {"note": lambda: rng.choice(("x", "y", ""))}),
                    "finalizers": lambda: rng.sample(["x.io/f", "x.io/g"], rng.randint(1, 2)),
                },
                0.3,
            ),
            **_some(
                rng,
                {
                    "creationTimestamp": lambda: None,
                    "labels": lambda: rng.choice(({"-bad": "x"}, {"a": "not ok!"}, {"a": 1})),
                    "finalizers": lambda: ["plain"],
                    "namespace": lambda: "elsewhere",
                },
                0.015,
            ),
        }

    def _object(self, kind: Kind, name: str) -> Json:
        return {
            "apiVersion": kind.api_version, "kind": kind.kind, "metadata": self._metadata(name), **kind.make(self._rng)
        }  # fmt: skip

    # -- actions ----------------------------------------------------------------------------------------------

    def _create(self, kind: Kind, name: str) -> Step:
        return Step("POST", self._path(kind), self._options(), self._object(kind, name))

    def _replace(self, kind: Kind, name: str) -> Step:
        path = self._path(kind, name)
        if self._rng.random() < 0.2:
            return Step("PUT", path, self._options(), self._object(kind, name))
        body = {"apiVersion": kind.api_version, "kind": kind.kind, **kind.make(self._rng)}
        return Step("PUT", path, self._options(), body, base=path)

    def _merge(self, kind: Kind, name: str) -> Step:
        rng = self._rng
        body = kind.make(rng)
        body.pop("status", None)
        body |= _some(rng, {"metadata": lambda: {"labels": _some(rng, {"app": lambda: rng.choice(("a", None))})}})
        body |= _some(rng, {"metadata": lambda: {"finalizers": None}}, 0.1)
        return Step("PATCH", self._path(kind, name), self._options(), body, PATCHES["merge"])

    def _json(self, kind: Kind, name: str) -> Step:
        rng = self._rng
        paths = ("/metadata/labels", "/metadata/labels/app", "/spec/cores", "/data/a", "/spec/tags/-", "/spec/disks/0",
                 "/metadata/annotations", "/spec/ports/0/port", "/rules/0", "/metadata/name", "/kind")  # fmt: skip

        def operation() -> Json:
            kind_of = rng.choice(("add", "replace", "remove", "test", "odd"))
            made: Json = {"op": kind_of, "path": rng.choice(paths)}
            if kind_of in ("add", "replace", "test"):
                made["value"] = rng.choice((1, "x", {"app": "a"}, "a", None))
            return made

        body = [operation() for _ in range(rng.randint(0, 2))]
        return Step("PATCH", self._path(kind, name), self._options(), body, PATCHES["json"])

    def _strategic(self, kind: Kind, name: str) -> Step:
        rng = self._rng
        body = kind.make(rng)
        body |= _some(rng, {"metadata": lambda: {"labels": {"app": "a", "$patch": "replace"}}}, 0.3)
        body |= _some(rng, {"secrets": lambda: [{"name": "x", "$patch": "delete"}]}, 0.2)
        if kind.plural == "services" and rng.random() < 0.5:
            body["spec"]["ports"] = [{"port": 80, "$patch": "delete"}, {"port": 443, "targetPort": 1}]
        return Step("PATCH", self._path(kind, name), self._options(), body, PATCHES["strategic"])

    def _apply(self, kind: Kind, name: str) -> Step:
        options = self._options() | _some(self._rng, {"force": lambda: "true"}, 0.4)
        obj = self._object(kind, name)
        return Step("PATCH", self._path(kind, name), options, obj, PATCHES["apply"])

    def _status(self, kind: Kind, name: str) -> Step:
        rng = self._rng
        kind = KINDS[-1]
        path = self._path(kind, name, "status")
        condition: Json = {"type": rng.choice(("Ready", "Good")), "status": rng.choice(("True", "False"))}
        status = _some(rng, {"phase": lambda: rng.choice(("Up", "Down")), "replicas": lambda: rng.randint(0, 3),
                             "conditions": lambda: [condition]})  # fmt: skip
        body: Json = {
            "status": status,
            **_some(rng, {"spec": lambda: {"cores": 3}, "metadata": lambda: {"labels": {"s": "t"}}}, 0.3),
        }
        form = rng.choice(("merge", "apply", "put"))
        if form == "put":
            body |= {"apiVersion": kind.api_version, "kind": kind.kind}
            body.pop("metadata", None)
            return Step("PUT", path, self._options(), body, base=self._path(kind, name))
        if form == "apply":
            body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "status": status}
            return Step("PATCH", path, self._options() | {"force": "true"}, body, PATCHES["apply"])
        return Step("PATCH", path, self._options(), body, PATCHES["merge"])

    def _delete(self, kind: Kind, name: str) -> Step:
        rng = self._rng
        body = _some(
            rng,
            {
                "propagationPolicy": lambda: rng.choice(("Background", "Background", "Odd")),
                "preconditions": lambda: rng.choice(
                    ({"uid": "$uid"}, {"uid": "other"}, {"resourceVersion": "$rv"}, {"resourceVersion": "1"})
                ),
                "gracePeriodSeconds": lambda: rng.choice((0, 5, -1)),
                "dryRun": lambda: ["All"],
            },
            0.2,
        )
        if body:
            body |= {"kind": "DeleteOptions", "apiVersion": "v1"}
        return Step("DELETE", self._path(kind, name), {}, body or None, base=self._path(kind, name) if body else "")

    def _delete_many(self, kind: Kind, name: str) -> Step:
        return Step("DELETE", self._path(kind), {"labelSelector": f"app={self._rng.choice('ab')},tier"}, None)

    def owned(self, count: int) -> list[tuple[str, list[tuple[str, bool]]]]:
        """Return names of objects, each with some of those before it as its owners and whether it blocks them."""
        rng = self._rng
        made: list[tuple[str, list[tuple[str, bool]]]] = []
        for number in range(count):
            before = [name for name, _ in made]
            owners = rng.sample(before, min(len(before), rng.choice((0, 1, 1, 1, 2))))
            made.append((f"o{number}", [(owner, rng.random() < 0.6) for owner in owners]))
        return made

    def deletions(self, count: int) -> list[tuple[str, str]]:
        """Return some of the objects of `owned`, each with the policy of its deletion."""
        rng = self._rng
        names = rng.sample(range(count), count // 4)
        return [(f"o{number}", rng.choice(("Foreground", "Background", "Orphan"))) for number in names]

    def _get(self, kind: Kind, name: str) -> Step:
        if kind.custom and self._rng.random() < 0.3:
            kind = replace(kind, root=f"/apis/{GROUP}/v1beta1")
        accept = self._rng.choice((JSON, TABLE, METADATA, "application/yaml", "text/html", "*/*"))
        return Step("GET", self._path(kind, name), {}, accept=accept)

    def _list(self, kind: Kind, name: str) -> Step:
        rng = self._rng
        query = _some(
            rng,
            {
                "labelSelector": lambda: rng.choice(SELECTORS),
                "fieldSelector": lambda: rng.choice(FIELDS),
                "limit": lambda: rng.choice(("1", "2", "0", "x", "-1")),
                "resourceVersion": lambda: rng.choice(("0", "", "x")),
                "resourceVersionMatch": lambda: rng.choice(("NotOlderThan", "Exact", "Odd")),
            },
            0.25,
        )
        return Step("GET", self._path(kind), query, accept=rng.choice((JSON, JSON, TABLE, METADATA_LIST)))

    def _wrong(self, kind: Kind, name: str) -> Step:
        obj = self._object(kind, name)
        return self._rng.choice(
            (
                Step("POST", self._path(kind), {}, {**obj, "kind": "Other"}),
                Step("POST", self._path(kind), {}, {**obj, "apiVersion": "v2"}),
                Step("POST", self._path(kind), {}, {**obj, "metadata": {"name": "Not_A_Name"}}),
                Step("POST", self._path(kind), {}, {**obj, "metadata": {"name": "x" * 300}}),
                Step("POST", self._path(kind), {}, [obj]),
                Step("POST", self._path(kind), {}, obj, content_type="text/plain"),
                Step("PUT", self._path(kind, name), {}, {**obj, "metadata": {"name": "other"}}),
                Step("PUT", self._path(kind), {}, obj),
                Step("PATCH", self._path(kind, name), {}, obj, PATCHES["apply"]),
                Step("PATCH", self._path(kind, name), {"force": "true"}, {}, PATCHES["merge"]),
                Step("PATCH", self._path(kind, name), {}, {"metadata": {"uid": "x"}}, PATCHES["merge"]),
                Step("PATCH", self._path(kind, name), {}, {"metadata": {"resourceVersion": "1"}}, PATCHES["merge"]),
                Step("PATCH", self._path(kind, name), {}, {"metadata": {"name": "z"}}, PATCHES["merge"]),
                Step("GET", kind.root + "/nothing"),
                Step("GET", f"/apis/{GROUP}/v9/machines"),
                Step("DELETE", self._path(kind, "absent")),
            )
        )


def definition() -> Json:
    """Return the CustomResourceDefinition that the scripts use."""
    labels: Json = {"type": "object", "additionalProperties": {"type": "string"}}
    disk: Json = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "size": {"type": "integer", "default": 1, "minimum": 1},
            "labels": labels,
        },
    }
    spec: Json = {
        "type": "object",
        "properties": {
            "cores": {"type": "integer", "minimum": 1, "maximum": 64},
            "max": {"type": "integer"},
            "replicas": {"type": "integer", "minimum": 0},
            "mode": {"type": "string", "enum": ["fast", "slow"], "default": "slow", "maxLength": 8},
            "memory": {"x-kubernetes-int-or-string": True},
            "ratio": {"type": "number", "minimum": 0},
            "enabled": {"type": "boolean", "nullable": True},
            "disks": {
                "type": "array", "maxItems": 5, "items": disk,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            },
            "tags": {"type": "array", "maxItems": 2, "x-kubernetes-list-type": "set",
                     "items": {"type": "string", "maxLength": 10}},
            "args": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "limits": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}},
            "point": {
                "type": "object", "x-kubernetes-map-type": "atomic",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 5}},
            },
            "name": {"type": "string", "maxLength": 8, "minLength": 1, "pattern": "^[a-z]+$"},
            "when": {"type": "string", "format": "date-time"},
            "fixed": {
                "type": "string", "maxLength": 10,
                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is fixed"}],
            },
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.max) || !has(self.cores) || self.cores <= self.max", "message": "too many cores",
             "fieldPath": ".cores", "reason": "FieldValueForbidden"},
            {"rule": "!has(self.tags) || self.tags.all(t, t != 'u')",
             "messageExpression": "'bad tags of ' + self.mode"},
        ],
    }  # fmt: skip
    condition: Json = {
        "type": "object",
        "required": ["type", "status"],
        "properties": {"type": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False"]}},
    }
    status: Json = {
        "type": "object",
        "properties": {
            "phase": {"type": "string"},
            "replicas": {"type": "integer"},
            "conditions": {
                "type": "array", "items": condition,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }  # fmt: skip
    schema: Json = {"type": "object", "properties": {"spec": spec, "status": status}}
    versions: list[Json] = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "deprecated": name != "v1",
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
            },
            "additionalPrinterColumns": [
                {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                {"name": "Cores", "type": "integer", "jsonPath": ".spec.cores", "priority": 1},
                {"name": "Tags", "type": "string", "jsonPath": ".spec.tags"},
            ],
            "selectableFields": [{"jsonPath": ".spec.mode"}],
            "schema": {"openAPIV3Schema": schema},
        }
        for name in ("v1", "v1beta1")
    ]
    names = {"plural": "machines", "singular": "machine", "kind": "Machine", "listKind": "MachineList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"machines.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions},
    }

"""The small parts: reading values, meaning the same, names, quantities, the schema check."""

from typing import Any

import pytest
from hypothesis import given

from anyvisor.admission import names, quantity
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.offline import Offline
from anyvisor.admission.result import Causes, bounded
from anyvisor.admission.schema import EXPRESSIONS, Schemas
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import clone, integer, items, mapping, strings, text
from anyvisor.api.crd import crds
from anyvisor.api.quantity import Quantity
from tests.unit.admission.deciding import NOW, UUID, Change, Json, both, drop, put, vm, vmi
from tests.unit.admission.shapes import JUNK


@given(JUNK)
def test_readers_take_anything(value: Any) -> None:
    assert isinstance(mapping(value), dict)
    assert all(isinstance(member, dict) for member in items(value))
    assert all(isinstance(member, str) for member in strings(value))
    assert isinstance(text(value), str)
    assert isinstance(integer(value), int)
    assert isinstance(quantity.value(value), int)


@given(JUNK)
def test_a_clone_is_equal_and_shares_nothing(value: Any) -> None:
    holder = {"a": [value]}
    copied = clone(holder)
    assert repr(copied) == repr(holder)
    assert copied["a"] is not holder["a"]


def test_a_clone_of_what_is_deep() -> None:
    deep: list[Any] = []
    for _ in range(50_000):
        deep = [deep]
    copied = clone(deep)
    depth = 0
    while copied:
        copied, depth = copied[0], depth + 1
    assert depth == 50_000


@given(JUNK)
def test_everything_means_itself(value: Any) -> None:
    assert equal(value, clone(value))


SAME: list[tuple[Json, Json, bool]] = [
    ({"hostname": ""}, {}, True),
    ({"volumes": []}, {}, True),
    ({"domain": {"resources": {"limits": {}}}}, {"domain": {}}, True),
    ({"domain": {"cpu": {"cores": 0}}}, {"domain": {"cpu": {}}}, True),
    ({"domain": {"memory": {"guest": "1Gi"}}}, {"domain": {"memory": {"guest": "1024Mi"}}}, True),
    ({"hostname": "1Gi"}, {"hostname": "1024Mi"}, False),
    ({"terminationGracePeriodSeconds": 0}, {}, False),
    ({"domain": {"devices": {"autoattachGraphicsDevice": False}}}, {"domain": {"devices": {}}}, False),
    ({"networks": [{"pod": {}}]}, {"networks": [{}]}, False),
    ({"domain": {"cpu": {"cores": 1}}}, {"domain": {"cpu": {"cores": True}}}, False),
    ({"volumes": [{"name": "a"}]}, {"volumes": [{"name": "a"}, {"name": "b"}]}, False),
    ({"volumes": [{"name": "a"}]}, {"volumes": {"name": "a"}}, False),
]


@pytest.mark.parametrize(("one", "other", "same"), SAME)
def test_meaning_the_same(one: Json, other: Json, same: bool) -> None:
    assert equal(one, other) is same
    assert equal(other, one) is same


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (names.is_label, ["a", "a-b", "0"], ["", "A", "a.b", "-a", "a" * 64, "a\n"]),
        (names.is_subdomain, ["a.b", "a"], ["", "a..b", "A", "a" * 254]),
        (names.is_label_key, ["a", "a.b/c", "A_b.c"], ["", "a/", "/a", "a/b/c", "A/b"]),
        (names.is_label_value, ["", "a", "A_1.x"], ["-", "a b", "a" * 64]),
        (names.is_port_name, ["http", "a-1"], ["", "1", "A", "a--b", "-a", "a" * 16]),
        (
            names.is_mac,
            ["02:00:00:00:00:01", "02-00-00-00-00-01", "0200.0000.0001"],
            ["", "02:00", "zz:00:00:00:00:01", "02:00-00:00:00:01"],
        ),
        (names.is_pci_address, ["0000:81:01.0", "00FF:81:ff.7"], ["81:01.0", "0000:81:01.8", "0000:81:1.0"]),
        (names.is_ip, ["1.2.3.4", "fe80::1"], ["", "1.2.3", "fe80::1%eth0", "1.2.3.4 "]),
        (names.is_ipv4, ["1.2.3.4", "::ffff:1.2.3.4"], ["fe80::1", "x"]),
    ],
)
def test_names(check: Any, good: list[str], bad: list[str]) -> None:
    assert [name for name in good if not check(name)] == []
    assert [name for name in bad if check(name)] == []


@pytest.mark.parametrize(
    ("written", "value", "milli"),
    [
        ("1Gi", 1 << 30, 1000 << 30),
        ("500m", 1, 500),
        ("-500m", -1, -500),
        (2, 2, 2000),
        (1.5, 2, 1500),
        (None, 0, 0),
        (True, 0, 0),
        ("x", 0, 0),
    ],
)
def test_quantities(written: Any, value: int, milli: int) -> None:
    assert (quantity.value(written), quantity.milli(written)) == (value, milli)


def test_a_quantity_of_bytes() -> None:
    assert quantity.binary(4 << 30) == "4Gi"
    assert quantity.parse("4Gi") == Quantity.of_bytes(4 << 30)


def test_messages_are_bounded() -> None:
    out = Causes()
    out.invalid("spec", "x" * 10_000)
    assert len(out[0].message) < 2_100
    assert bounded("short") == "short"


SCHEMAS = Schemas(crds())
OFFLINE = Offline(SCHEMAS, ClusterConfig.of(), lambda: UUID, NOW)
CHECKS: list[tuple[str, Json, str, str]] = [
    ("unknown field", vmi(put("spec.domain.devices.flux", 1)), "spec.domain.devices.flux", ""),
    ("unknown top field", vmi(put("data", {})), "data", ""),
    (
        "unknown field of a list",
        vm(put("spec.template.spec.volumes[0].disk", {})),
        "spec.template.spec.volumes[0].disk",
        "",
    ),
    (
        "number too large",
        vmi(put("spec.terminationGracePeriodSeconds", 2**63)),
        "spec.terminationGracePeriodSeconds",
        "",
    ),
    ("wrong type", vmi(put("spec.domain.cpu.cores", "many")), "spec.domain.cpu.cores", "FieldValueTypeInvalid"),
    ("no quantity", vmi(put("spec.domain.memory.guest", "lots")), "spec.domain.memory.guest", "FieldValueInvalid"),
    ("no choice", vmi(put("spec.domain.rebootPolicy", "Maybe")), "spec.domain.rebootPolicy", "FieldValueNotSupported"),
    ("missing structure", vmi(drop("spec.domain.devices")), "spec.domain.devices", "FieldValueRequired"),
    (
        "too many",
        vmi(
            put(
                "spec.accessCredentials",
                [
                    {
                        "userPassword": {
                            "source": {"secret": {"secretName": "s"}},
                            "propagationMethod": {"qemuGuestAgent": {}},
                        }
                    }
                ]
                * 257,
            )
        ),
        "spec.accessCredentials",
        "FieldValueTooMany",
    ),
    (
        "key twice",
        vmi(put("spec.resourceClaims", [{"name": "a", "resourceClaimName": "c"}] * 2)),
        "spec.resourceClaims[1]",
        "FieldValueDuplicate",
    ),
    (
        "expression",
        vmi(put("spec.volumes[1]", {"name": "p", "containerPath": {"path": "etc"}})),
        "spec.volumes[1].containerPath.path",
        "FieldValueInvalid",
    ),
]


@pytest.mark.parametrize(("obj", "path", "type_"), [row[1:] for row in CHECKS], ids=[row[0] for row in CHECKS])
def test_the_schema_is_checked(obj: Json, path: str, type_: str) -> None:
    result = OFFLINE.decide(OFFLINE.request(obj))
    assert not result.allowed
    assert (result.causes[0].location, result.causes[0].type) == (path, type_)
    assert path.rpartition(".")[2] in result.causes[0].message


@pytest.mark.parametrize(
    "change",
    [
        put("spec.dnsConfig", None),
        put("spec.domain.devices.disks[0]", {"name": "root", "disk": {"bus": None}}),
        put("status", None),
        drop("spec.volumes[0].containerDisk.image"),
        both(put("metadata.annotations", {"a": "b"}), put("metadata.strange", 1)),
    ],
    ids=["null", "null in a list", "null status", "zero value", "metadata is the server's"],
)
def test_what_the_schema_lets_through(change: Change) -> None:
    assert OFFLINE.decide(OFFLINE.request(vmi(change))).allowed


def test_a_replica_set_is_checked_strictly() -> None:
    obj = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "r"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": vmi(drop("spec.volumes[0].name"))["spec"]},
        },
    }
    (cause,) = OFFLINE.decide(OFFLINE.request(obj)).causes
    assert cause.field == "spec.template.spec.volumes[0].name"


def expressions(schema: Any) -> set[str]:
    found: set[str] = set()
    pending = [schema]
    while pending:
        part = mapping(pending.pop())
        found |= {text(rule.get("rule")) for rule in items(part.get("x-kubernetes-validations"))}
        inner = [*mapping(part.get("properties")).values(), part.get("items"), part.get("additionalProperties")]
        pending += [one for one in inner if mapping(one)]
    return found


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"])
def test_every_expression_is_known(kind: str) -> None:
    definition = next(one for one in crds() if one["spec"]["names"]["kind"] == kind)
    assert expressions(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) <= set(EXPRESSIONS)


@pytest.mark.parametrize("depth", [150, 300, 5_000, 100_000])
@pytest.mark.parametrize("path", ["spec.hostname", "spec.nodeSelector", "spec.domain.clock.x"])
def test_deep_values_are_refused(depth: int, path: str) -> None:
    deep: Json = {}
    for _ in range(depth):
        deep = {"a": deep}
    result = OFFLINE.decide(OFFLINE.request(vmi(put(path, deep))))
    assert result.allowed is (path.endswith("x") and depth == 150)

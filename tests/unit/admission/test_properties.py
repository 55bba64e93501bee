"""What holds for every object: defaults twice are defaults once, order is nothing, and nothing ever raises."""

import json
import os
import tracemalloc
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anyvisor.admission import unserved
from anyvisor.admission.dispatch import ADMITTERS
from anyvisor.admission.result import AdmissionResult
from anyvisor.admission.schema import Schemas
from anyvisor.admission.values import clone
from anyvisor.api.crd import crds
from tests.unit.admission.deciding import CONTROLLER, Json, World, both, causes, decide, put, vm, vmi
from tests.unit.admission.shapes import JUNK, objects, schema

KINDS = ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet", "KubeVirt"]
SLOW = settings(
    max_examples=int(os.environ.get("ANYVISOR_EXAMPLES", "12")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
SCHEMAS = Schemas(crds())


def told(result: AdmissionResult) -> tuple[bool, set[tuple[str, str, str]]]:
    return result.allowed, {(cause.field, cause.type, cause.message) for cause in result.causes}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@SLOW
def test_any_shape_is_decided(kind: str, data: st.DataObject) -> None:
    obj = data.draw(objects(kind, junk=True))
    before = json.dumps(obj, sort_keys=True)
    result = decide(obj)
    assert json.dumps(obj, sort_keys=True) == before, "the request's object was changed"
    assert result.allowed or result.message
    unserved.check(kind, obj)
    old = data.draw(objects(kind, junk=True))
    for user in (None, CONTROLLER):
        for subresource in ("", "status"):
            decide(obj, operation="UPDATE", old=old, user=user, subresource=subresource)


@given(obj=JUNK, world=st.lists(JUNK, max_size=2), kind=st.sampled_from(sorted(ADMITTERS)))
@SLOW
def test_any_json_is_decided(obj: Any, world: list[Any], kind: str) -> None:
    wrapped: Json = cast(Json, obj) if isinstance(obj, dict) else {"spec": obj, "metadata": obj, "status": obj}
    around = World(
        *(
            {"kind": k, "metadata": {"name": "x", "namespace": "default"}, "spec": one, "status": one}
            for one in world
            for k in ("Pod", "VirtualMachineInstance")
        )
    )
    for operation in ("CREATE", "UPDATE", "DELETE"):
        decide(wrapped, kind=kind, operation=operation, old=wrapped, world=around)


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance"])
@given(data=st.data())
@SLOW
def test_defaults_twice_are_defaults_once(kind: str, data: st.DataObject) -> None:
    once = decide(data.draw(objects(kind)))
    twice = decide(once.object)
    assert twice.object == once.object
    assert told(twice) == told(once)


def reversed_fields(value: Any) -> Any:
    if isinstance(value, dict):
        fields = list(cast(Json, value).items())
        return {key: reversed_fields(member) for key, member in reversed(fields)}
    if isinstance(value, list):
        return [reversed_fields(member) for member in cast(list[Any], value)]
    return value


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@SLOW
def test_the_order_of_fields_is_nothing(kind: str, data: st.DataObject) -> None:
    obj = data.draw(objects(kind))
    one, other = decide(obj), decide(reversed_fields(obj))
    assert told(one) == told(other)
    assert one.object == other.object


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"])
@given(data=st.data())
@SLOW
def test_an_update_to_the_same_object_is_allowed(kind: str, data: st.DataObject) -> None:
    created = decide(data.draw(objects(kind)))
    if created.allowed:
        again = decide(clone(created.object), operation="UPDATE", old=created.object)
        assert told(again) == (True, set())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "KubeVirt"])
@given(data=st.data())
@SLOW
def test_the_schema_check_never_raises(kind: str, data: st.DataObject) -> None:
    checker = SCHEMAS.find("kubevirt.io/v1", kind)
    assert checker is not None
    obj = data.draw(objects(kind, junk=True))
    checker.unknown(obj)
    checker.check(obj, lenient=data.draw(st.booleans()))


def nested(depth: int) -> Json:
    deep: Json = {}
    for _ in range(depth):
        deep = {"a": deep}
    return deep


HOSTILE: dict[str, Any] = {
    "deep nesting": put("spec.domain.x", nested(100_000)),
    "10,000 disks": put("spec.domain.devices.disks", [{"name": f"d{i}", "disk": {}} for i in range(10_000)]),
    "10,000 volumes": put("spec.volumes", [{"name": f"d{i}", "emptyDisk": {"capacity": "1"}} for i in range(10_000)]),
    "a megabyte of name": put("spec.domain.devices.disks[0].name", "a" * (1 << 20)),
    "a huge number": put("spec.domain.cpu.cores", 10**5000),
    "huge numbers": both(
        put("spec.terminationGracePeriodSeconds", -(10**5000)),
        put("spec.domain.devices.interfaces[0].ports", [{"port": 10**5000}]),
        put("spec.topologySpreadConstraints", [{"maxSkew": -(10**5000)}]),
        put("spec.domain.devices.interfaces[0].dhcpOptions.privateOptions", [{"option": 10**5000}]),
    ),
    "deep values": both(
        *(
            put(path, nested(5_000))
            for path in (
                "spec.hypervisor",
                "spec.startStrategy",
                "spec.evictionStrategy",
                "spec.domain.ioThreadsPolicy",
                "spec.domain.memory.guest",
                "spec.domain.memory.hugepages.pageSize",
                "spec.domain.devices.disks[0].errorPolicy",
                "spec.domain.devices.sound.model",
            )
        ),
        put("spec.domain.devices.inputs", [{"type": nested(5_000), "bus": nested(5_000)}]),
        put("spec.domain.devices.panicDevices", [{"model": nested(5_000)}]),
    ),
    "a huge quantity": put("spec.domain.memory.guest", "9" * 100_000),
    "a huge exponent": put("spec.domain.memory.guest", "1e999999999"),
    "control characters": put("spec.hostname", "\x00\x1b[2J\udfff"),
    "a megabyte of cloud-init": put(
        "spec.volumes[1]", {"name": "c", "cloudInitNoCloud": {"userData": "#cloud-config\n" + "[" * (1 << 20)}}
    ),
    "a megabyte of base64": put(
        "spec.volumes[1]", {"name": "c", "cloudInitNoCloud": {"userDataBase64": "A" * (1 << 20)}}
    ),
    "10,000 interfaces": put(
        "spec.domain.devices.interfaces", [{"name": "default", "bridge": {}} for _ in range(10_000)]
    ),
    "10,000 spread constraints": put(
        "spec.topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"} for _ in range(10_000)],
    ),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_objects_are_decided_quickly(name: str) -> None:
    result = decide(vmi(HOSTILE[name]))
    assert result.allowed or result.message
    for cause in result.causes[:100]:
        assert len(cause.message) < 4096, "a message repeats what a hostile user wrote"


@pytest.mark.parametrize("name", [name for name in HOSTILE if "deep" not in name and "number" not in name])
def test_hostile_objects_cost_memory_like_their_size(name: str) -> None:
    obj = vmi(HOSTILE[name])
    size = len(repr(obj))
    tracemalloc.start()
    try:
        decide(obj)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * size + (4 << 20)


def test_a_deep_vm_is_decided() -> None:
    deep = vm(put("spec.template.spec.domain.x", nested(100_000)))
    assert decide(deep).allowed
    assert decide(deep, operation="UPDATE", old=clone(deep)).allowed


def test_the_strategies_reach_the_rules() -> None:
    assert "devices" in schema("VirtualMachineInstance")["properties"]["spec"]["properties"]["domain"]["properties"]
    assert causes(decide(vmi())) == set()

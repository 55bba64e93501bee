"""The capability registry against the API's schema: unknown is not yes, so nothing may be unmapped."""

from collections.abc import Iterator
from typing import Any

import pytest

from anyvisor.api.kubevirt.vmi_spec import VirtualMachineInstanceSpec
from anyvisor.api.schema import object_schema
from anyvisor.planning import predicates
from anyvisor.planning.patching import with_value
from anyvisor.planning.registry import CAPABILITY_ID, Need, RegistryError, load, registry

SCHEMA = object_schema(VirtualMachineInstanceSpec)
REGISTRY = registry()


def leaves(schema: dict[str, Any], at: str) -> Iterator[str]:
    """The paths of all scalars, free maps and empty objects."""
    inner = schema.get("properties")
    if inner:
        for name, below in inner.items():
            yield from leaves(below, f"{at}.{name}" if at else name)
    elif schema.get("type") == "array":
        yield from leaves(schema["items"], f"{at}[*]")
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from leaves(schema["additionalProperties"], f"{at}[*]")
    else:
        yield at


LEAVES = sorted(set(leaves(SCHEMA, "")))


def example(path: str) -> dict[str, Any]:
    """A spec with a value at the path alone."""
    value: Any = "value"
    for name, each in reversed(predicates.steps(path)):
        value = {name: [value] if each else value}
    return value


def below(place: Any, name: str, each: bool) -> Any:
    """The schema one step further, None when there is no such step."""
    found = place.get("properties", {}).get(name)
    return (found.get("items") or found.get("additionalProperties")) if found and each else found


def known(path: str) -> bool:
    """Whether the schema has a place at the path."""
    here: Any = SCHEMA
    for name, each in predicates.steps(path.removesuffix(".**")):
        here = below(here, name, each)
        if here is None or here is True:
            return False
    return True


def test_the_schema_has_what_it_is_known_to_have():
    assert len(LEAVES) > 350


@pytest.mark.parametrize("path", LEAVES)
def test_every_leaf_is_mapped_or_needs_nothing_for_a_reason(path: str):
    assert REGISTRY.unmapped(example(path)) == []


def test_a_field_of_the_future_is_unmapped():
    spec = {"domain": {"devices": {"warpDrive": {"speed": 9}, "disks": [{"name": "a", "quantum": True}]}}, "soul": 1}
    assert REGISTRY.unmapped(spec) == ["domain.devices.warpDrive", "domain.devices.disks[0].quantum", "soul"]


def test_depth_beyond_the_schema_is_unmapped_and_harmless():
    deep: Any = 1
    for _ in range(5000):
        deep = {"a": deep}
    assert REGISTRY.unmapped({"domain": {"cpu": {"model": deep}}}) == ["domain.cpu.model"]


def test_every_path_of_the_registry_is_in_the_schema():
    assert sorted(path for path in set(REGISTRY.mapped_paths()) if not known(path)) == []


def test_neutral_fields_have_a_reason():
    assert all(reason.endswith(".") for reason in REGISTRY.neutral.values())


@pytest.mark.parametrize("capability", list(REGISTRY), ids=lambda c: c.id)
def test_each_capability_is_in_form(capability: Any):
    assert CAPABILITY_ID.fullmatch(capability.id)
    assert capability.doc.endswith(".")
    assert capability.kind == "flag" or capability.value or not capability.needed_by
    assert not capability.value or next(iter(capability.value)) in predicates.VALUE_EXPRESSIONS
    for place in (*capability.substitutes, *capability.remedies):
        assert not place.path or known(place.path)
    for substitute in capability.substitutes:
        assert all(REGISTRY.find(other) for other in substitute.needs)
    if capability.needed_by and capability.miss == "refuse":
        assert capability.remedies or capability.applies_to != "create" or not capability.substitutes


def test_there_are_as_many_as_the_vocabulary_asks_for():
    assert len(REGISTRY) >= 150


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version": 1, "capabilities": [{"id": "a.b"}]}',
        b'{"version": 1, "capabilities": [{"id": "a.b", "doc": "x", "neededBy": {"what": "a"}}]}',
        b'{"version": 1, "capabilities": [{"id": "a.b", "doc": "x"}, {"id": "a.b", "doc": "x"}]}',
        b'{"version": 1, "capabilities": [{"id": "a.b", "doc": "x", "unknown": 1}]}',
    ],
)
def test_a_broken_registry_is_refused(data: bytes):
    with pytest.raises(RegistryError):
        load(data, b"{}")


def soft(spec: dict[str, Any], defaulted: dict[str, str]) -> dict[str, bool]:
    return {need.capability.id: need.soft for need in REGISTRY.needs(spec, defaulted)}


@pytest.mark.parametrize(
    ("spec", "defaulted", "capability", "is_soft"),
    [
        ({"domain": {"cpu": {"model": "host-model"}}}, {}, "cpu.model.host", False),
        ({"domain": {"cpu": {"model": "host-model"}}}, {"domain.cpu.model": "x"}, "cpu.model.host", True),
        ({"domain": {"cpu": {"model": "host-model"}}}, {"domain.cpu": "x"}, "cpu.model.host", True),
        ({"domain": {}}, {}, "display.vnc", True),
        ({"domain": {"devices": {"autoattachGraphicsDevice": True}}}, {}, "display.vnc", False),
        ({"domain": {}}, {}, "boot.bios", True),
        ({"domain": {"firmware": {"bootloader": {"efi": {}}}}}, {}, "boot.uefi", False),
        ({"domain": {"firmware": {"bootloader": {"efi": {}}}}}, {}, "boot.uefi.secure", False),
        (
            {"domain": {"devices": {"disks": [{"disk": {"bus": "sata"}}]}}},
            {"domain.devices.disks[0]": "x"},
            "disk.bus",
            True,
        ),
        ({"domain": {"cpu": {"sockets": 2}}}, {"domain.cpu.sockets": "x"}, "cpu.count", True),
        (
            {"domain": {"features": {"acpi": {"enabled": True}}}},
            {"domain.features.acpi.enabled": "x"},
            "feature.acpi",
            True,
        ),
        ({"domain": {"features": {"acpi": {}}}}, {"domain.features.acpi.enabled": "x"}, "feature.acpi", False),
        (
            {"domain": {"devices": {"inputs": [{"name": "a", "bus": "usb"}]}}},
            {"domain.devices.inputs[0].bus": "x", "domain.devices.inputs[0].name": "x"},
            *("input.tablet", True),
        ),
    ],
)
def test_a_need_is_soft_when_nobody_wrote_it(
    spec: dict[str, Any], defaulted: dict[str, str], capability: str, is_soft: bool
):
    assert soft(spec, defaulted)[capability] is is_soft


@pytest.mark.parametrize(
    ("spec", "absent"),
    [
        ({"domain": {"devices": {"autoattachGraphicsDevice": False}}}, "display.vnc"),
        ({"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": False}}}}}, "boot.uefi.secure"),
        ({"domain": {"firmware": {"bootloader": {"efi": {}}}}}, "boot.bios"),
        ({"domain": {"firmware": {"kernelBoot": {"container": {"kernelPath": "/k"}}}}}, "boot.bios"),
        ({"architecture": "arm64"}, "boot.bios"),
        ({"terminationGracePeriodSeconds": 0}, "lifecycle.shutdown"),
        ({"domain": {"devices": {"tpm": {"enabled": False}}}}, "device.tpm"),
        ({"domain": {"cpu": {"cores": 1, "threads": 1}}}, "cpu.topology"),
    ],
)
def test_what_is_not_needed(spec: dict[str, Any], absent: str):
    assert absent not in soft(spec, {})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("domain.machine.type", "pc"),
        ("domain.devices.disks[0].disk.bus", "scsi"),
        ("domain.devices.disks[0].cache", "none"),
        ("domain.cpu", None),
        ("domain.cpu.model", "host-passthrough"),
        ("domain.features", {"acpi": {}, "hyperv": {"relaxed": {}}}),
        ("domain.memory.guest", "64Gi"),
        ("evictionStrategy", "LiveMigrate"),
        ("domain.devices.interfaces", []),
    ],
)
def test_after_a_change_only_what_it_concerns_is_asked_again(field: str, value: object) -> None:
    spec: dict[str, object] = {
        "domain": {
            "cpu": {"cores": 2, "model": "host-model"},
            "memory": {"guest": "1Gi"},
            "machine": {"type": "q35"},
            "devices": {
                "disks": [{"name": "a", "disk": {"bus": "virtio"}, "serial": "s"}],
                "interfaces": [{"name": "n", "masquerade": {}, "model": "virtio"}],
                "rng": {},
            },
        },
        "volumes": [{"name": "a", "containerDisk": {"image": "x"}}],
        "networks": [{"name": "n", "pod": {}}],
    }
    known = registry()
    before: dict[str, list[Need]] = {}
    for need in known.needs(spec, {}):
        before.setdefault(need.capability.id, []).append(need)
    changed = with_value(spec, field, value)
    sources = {field: "driver x"}
    assert known.needs(changed, sources, before, [field]) == known.needs(changed, sources)

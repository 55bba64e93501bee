"""The planner: verdicts, findings, substitutions, resources; and what holds for every input."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anyvisor.planning import planner
from anyvisor.planning.facts import DriverFacts, Narrowing, NodeFacts, node_facts
from anyvisor.planning.findings import CODES
from anyvisor.planning.judge import Policy
from anyvisor.planning.plan import Plan, PlanError, decode, digest, encode
from anyvisor.planning.planner import effective, plan
from anyvisor.planning.registry import registry
from tests.unit.planning.builders import BASE, driver, hypervisor_class, small

MIB = 1 << 20


def codes(made: Plan) -> dict[str, str]:
    return {finding.capability or finding.field: finding.code for finding in made.findings}


def ask(spec: dict[str, Any], capabilities: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan(spec, hypervisor_class(), driver(capabilities), **more)


def test_a_machine_that_fits_is_satisfied_without_findings():
    made = ask(small())
    assert (made.verdict, made.findings, made.substitutions) == ("SATISFIED", (), ())
    assert made.confirmed == (
        *("arch", "boot.bios", "console.serial", "cpu.count", "disk.bus", "disk.count", "lifecycle.shutdown"),
        *("machine.profile", "memory.balloon", "memory.size", "nic.count", "nic.model"),
    )
    assert (made.hypervisor_class, made.driver, made.driver_version) == ("std", "test.example.org", "1.2.3")
    assert made.disk_formats == ("raw", "qcow2")
    assert made.pod.image == "example.org/test:1"
    assert made.host_needs == ("test.example.org/driver",)


@pytest.mark.parametrize(
    ("domain", "capabilities", "capability", "code"),
    [
        ({"devices": {"rng": {}}}, {}, "device.rng", "CAP_NOT_STATED"),
        ({"devices": {"rng": {}}}, {"device.rng": {"state": False}}, "device.rng", "CAP_NO"),
        ({"devices": {"rng": {}}}, {"device.rng": {"level": "experimental"}}, "device.rng", "CAP_EXPERIMENTAL"),
        ({"devices": {"rng": {}}}, {"device.rng": {"arch": ["arm64"]}}, "device.rng", "CAP_NO"),
        ({"devices": {"disks": [{"name": "a", "disk": {"bus": "sata"}}]}}, {}, "disk.bus", "VALUE_NOT_IN_SET"),
        ({"machine": {"type": "i440fx"}}, {}, "machine.profile", "VALUE_NOT_IN_SET"),
        ({"cpu": {"sockets": 4, "cores": 5}}, {"cpu.topology": {}}, "cpu.count", "LIMIT_EXCEEDED"),
        ({"memory": {"guest": "2Ti"}}, {}, "memory.size", "LIMIT_EXCEEDED"),
        ({"devices": {"disks": [{"name": str(n)} for n in range(9)]}}, {}, "disk.count", "LIMIT_EXCEEDED"),
    ],
)
def test_what_the_user_wrote_and_the_driver_lacks_is_refused(
    domain: dict[str, Any], capabilities: dict[str, Any], capability: str, code: str
):
    made = ask(small(**domain), capabilities)
    assert made.verdict == "REFUSED"
    assert codes(made)[capability] == code
    found = next(f for f in made.findings if f.capability == capability)
    assert found.severity == "error"
    assert found.field.startswith("spec.domain.")
    assert found.message
    assert found.want


def test_sizes_are_shown_as_a_user_writes_them():
    found = next(f for f in ask(small(memory={"guest": "2Ti"})).findings if f.capability == "memory.size")
    assert (found.have, found.want) == ("1Ti", "2Ti")
    assert "up to 1Ti, not 2Ti" in found.message


def test_machine_types_are_patterns():
    assert ask(small(machine={"type": "pc-q35-7.2"})).verdict == "SATISFIED"


def test_all_reasons_are_told_at_once():
    made = ask(small(devices={"rng": {}, "sound": {"name": "s", "model": "ich9"}, "tpm": {}}))
    assert {"device.rng", "device.sound", "device.tpm"} <= set(codes(made))


@pytest.mark.parametrize(
    ("domain", "capabilities", "default", "to", "code"),
    [
        ({"cpu": {"model": "host-model"}}, {}, "domain.cpu.model", None, "DROPPED"),
        (
            {"cpu": {"model": "host-model"}},
            {"cpu.model.passthrough": {}},
            "domain.cpu.model",
            "host-passthrough",
            "SUBSTITUTED",
        ),
        ({"cpu": {"maxSockets": 4}}, {}, "domain.cpu.maxSockets", None, "DROPPED"),
        ({"machine": {"type": "virt"}}, {}, "domain.machine.type", None, "DROPPED"),
        (
            {"devices": {"autoattachGraphicsDevice": False, "disks": [{"name": "a", "disk": {"bus": "sata"}}]}},
            {},
            "domain.devices.disks[0].disk.bus",
            "virtio",
            "SUBSTITUTED",
        ),
    ],
)
def test_a_default_that_cannot_be_met_is_replaced_or_dropped_and_told(
    domain: dict[str, Any], capabilities: dict[str, Any], default: str, to: Any, code: str
):
    spec = small(**domain)
    made = ask(spec, capabilities, defaulted={"spec." + default: "built-in default"})
    assert made.verdict == "SATISFIED"
    (substitution,) = made.substitutions
    assert (substitution.field, substitution.to) == (default, to)
    (finding,) = made.findings
    assert (finding.code, finding.severity) == (code, "info")
    assert "built-in default" in finding.message
    assert ask(effective(spec, made), capabilities).verdict == "SATISFIED"


def test_a_screen_that_nobody_asked_for_is_turned_off():
    spec = small()
    del spec["domain"]["devices"]["autoattachGraphicsDevice"]
    made = ask(spec)
    assert made.verdict == "SATISFIED"
    assert effective(spec, made)["domain"]["devices"]["autoattachGraphicsDevice"] is False
    assert "autoattachGraphicsDevice" not in spec["domain"]["devices"]
    spec["domain"]["devices"]["autoattachGraphicsDevice"] = True
    assert ask(spec).verdict == "REFUSED"


def test_a_substitute_raises_new_needs_that_are_met_in_turn():
    no_bios: dict[str, Any] = {"boot.bios": None, "boot.uefi": {}}
    made = ask(small(), no_bios)
    assert made.verdict == "SATISFIED"
    assert "boot.uefi" in made.confirmed
    assert [s.field for s in made.substitutions] == ["domain.firmware.bootloader"]
    assert ask(small(), {"boot.bios": None}).verdict == "REFUSED"


def test_what_can_be_done_without_degrades():
    spec = small()
    spec["domain"]["devices"]["blockMultiQueue"] = True
    made = ask(spec)
    assert (made.verdict, codes(made)) == ("DEGRADED", {"disk.multiqueue": "DEGRADED"})
    assert "blockMultiQueue" not in effective(spec, made)["domain"]["devices"]
    assert plan(spec, hypervisor_class(), driver(), policy=Policy(allow_degraded=False)).verdict == "REFUSED"


def test_an_unmapped_field_is_refused():
    made = ask(small(warp={"factor": 9}))
    assert (made.verdict, codes(made)) == ("REFUSED", {"spec.domain.warp": "FIELD_UNMAPPED"})


def test_unknown_is_no_yes_even_where_it_is_let_through():
    made = plan(small(devices={"rng": {}}), hypervisor_class(), driver(), policy=Policy(allow_unknown=True))
    assert made.verdict == "UNKNOWN"
    assert not made.accepted


def test_experimental_by_the_class_policy():
    spec = small()
    spec["domain"]["devices"]["rng"] = {}
    experimental = driver({"device.rng": {"level": "experimental"}})
    assert plan(spec, hypervisor_class(), experimental).verdict == "REFUSED"
    allowing = hypervisor_class(policy={"allowExperimental": True})
    assert plan(spec, allowing, experimental).verdict == "SATISFIED"


def test_requires_and_conflicts():
    spec = small()
    spec["domain"]["devices"]["rng"] = {}
    requires: dict[str, Any] = {"device.rng": {"requires": ["device.vsock"]}, "device.vsock": {}}
    assert codes(ask(spec, requires))["device.rng"] == "REQUIRES"
    assert codes(ask(spec, {"device.rng": {"conflicts": ["disk.bus"]}}))["device.rng"] == "CONFLICT"


def test_memory_that_is_not_stated_is_refused():
    spec = small()
    del spec["domain"]["memory"]
    assert codes(ask(spec))["spec.domain.memory.guest"] == "MEMORY_UNKNOWN"
    spec["domain"]["resources"] = {"requests": {"memory": "256Mi"}}
    assert ask(spec).resources.guest_memory_bytes == 256 * MIB


@pytest.mark.parametrize(
    ("change", "cpu", "limit", "memory"),
    [
        ({}, 100, 0, 1024 + 50 + 2 + 8 + 16 + 2),
        ({"cpu": {"sockets": 2, "cores": 2}}, 400, 0, 1024 + 50 + 2 + 32 + 16 + 2),
        ({"resources": {"requests": {"memory": "512Mi", "cpu": "250m"}}}, 250, 0, 512 + 50 + 2 + 8 + 16 + 2),
        ({"resources": {"limits": {"cpu": "1500m"}}}, 100, 1500, 1024 + 50 + 2 + 8 + 16 + 2),
        ({"resources": {"overcommitGuestOverhead": True}}, 100, 0, 1024),
        ({"cpu": {"sockets": 2, "dedicatedCpuPlacement": True}}, 2000, 2000, 1024 + 50 + 2 + 16 + 16 + 2),
        (
            {"cpu": {"cores": 1, "dedicatedCpuPlacement": True, "isolateEmulatorThread": True}},
            2000,
            2000,
            1024 + 50 + 2 + 8 + 16 + 2,
        ),
        (
            {"memory": {"guest": "1Gi", "reservedOverhead": {"addedOverhead": "100Mi"}}},
            100,
            0,
            1024 + 50 + 2 + 8 + 16 + 2 + 100,
        ),
    ],
)
def test_resources(change: dict[str, Any], cpu: int, limit: int, memory: int):
    stated: dict[str, Any] = {name: {} for name in ("cpu.topology", "cpu.pin", "cpu.isolate-emulator")}
    found = ask(small(**change), stated).resources
    assert (found.cpu_millis, found.cpu_limit_millis) == (cpu, limit)
    assert found.memory_bytes == memory * MIB
    assert found.overhead_bytes == sum(item.bytes for item in found.overhead)


def test_the_class_overrides_the_overhead():
    made = plan(small(), hypervisor_class(overhead={"fixed": "1Gi", "perVcpu": "0"}), driver())
    assert {item.item: item.bytes for item in made.resources.overhead}["fixed"] == 1 << 30
    broken = plan(small(), hypervisor_class(overhead={"fixed": "lots"}), driver())
    assert (broken.verdict, broken.findings[0].code) == ("REFUSED", "PARAM_INVALID")


PARAMETERS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"cache": {"type": "integer", "minimum": 1, "default": 4}, "fast": {"type": "boolean"}},
}


@pytest.mark.parametrize(
    ("given_", "code", "values"),
    [
        ({}, "", {"cache": "4"}),
        ({"cache": 8, "fast": True}, "", {"cache": "8", "fast": "true"}),
        ({"cache": 0}, "PARAM_INVALID", {"cache": "0"}),
        ({"cash": 1}, "PARAM_UNKNOWN", {"cache": "4", "cash": "1"}),
    ],
)
def test_parameters(given_: dict[str, Any], code: str, values: dict[str, str]):
    made = plan(small(), hypervisor_class(parameters=given_), driver(parameters=PARAMETERS))
    assert made.parameters == values
    assert [finding.code for finding in made.findings] == ([code] if code else [])


def node(name: str, *accelerators: str, **more: Any) -> NodeFacts:
    facts = DriverFacts(driver="test.example.org", accelerators=accelerators, **more)
    return NodeFacts(name=name, drivers={facts.driver: facts})


@pytest.mark.parametrize(
    ("nodes", "policy", "accelerator", "code", "verdict"),
    [
        ([], {}, "auto", "", "SATISFIED"),
        ([node("a", "kvm", "emulation")], {}, "kvm", "", "SATISFIED"),
        ([node("a", "kvm"), node("b", "emulation")], {}, "auto", "", "SATISFIED"),
        ([node("a", "emulation")], {}, "emulation", "EMULATION", "SATISFIED"),
        ([node("a", "emulation")], {"allowEmulation": False}, "auto", "ACCELERATOR_UNAVAILABLE", "REFUSED"),
        ([node("a", "kvm"), node("b", "emulation")], {"allowEmulation": False}, "kvm", "", "SATISFIED"),
        ([NodeFacts("a")], {}, "auto", "DRIVER_ABSENT", "SATISFIED"),
        ([node("a", "kvm", healthy=False, reason="no binary")], {}, "kvm", "DRIVER_UNHEALTHY", "SATISFIED"),
        ([node("a", "kvm", manifest_digest="sha256:other")], {}, "kvm", "DRIVER_UNHEALTHY", "SATISFIED"),
        ([node("a", "kvm", manifest_digest=driver().digest)], {}, "kvm", "", "SATISFIED"),
        ([node("a", "kvm", manifest_digest="sha256:other"), node("b", "kvm")], {}, "kvm", "", "SATISFIED"),
    ],
)
def test_accelerators_and_nodes(nodes: Any, policy: Any, accelerator: str, code: str, verdict: str):
    made = plan(small(), hypervisor_class(policy=policy), driver(), nodes)
    assert (made.accelerator, made.verdict) == (accelerator, verdict)
    assert [finding.code for finding in made.findings] == ([code] if code else [])
    devices = {device.resource: device.count for device in made.resources.devices}
    assert devices == ({"devices.kubevirt.io/kvm": 1} if accelerator == "kvm" else {})


def test_a_node_whose_driver_has_another_manifest_is_named():
    found = plan(small(), hypervisor_class(), driver(), [node("a", "kvm", manifest_digest="sha256:x", version="1.0")])
    assert "version 1.0 by another manifest than the installed one" in found.findings[0].message


def test_an_accelerator_by_the_class():
    made = plan(
        small(), hypervisor_class(parameters={"accelerator": "emulation"}), driver(), [node("a", "kvm", "emulation")]
    )
    assert (made.accelerator, made.parameters) == ("emulation", {})
    wrong = plan(small(), hypervisor_class(parameters={"accelerator": "magic"}), driver())
    assert wrong.findings[0].code == "ACCELERATOR_UNAVAILABLE"


@pytest.mark.parametrize(
    "narrowed",
    [
        {"disk.bus": Narrowing(state=False, reason="no virtio")},
        {"disk.bus": Narrowing(values=("scsi",))},
        {"memory.size": Narrowing(max=1 << 29)},
    ],
)
def test_a_node_narrows(narrowed: dict[str, Narrowing]):
    poor, rich = node("poor", "kvm", narrowed=narrowed), node("rich", "kvm")
    refused = plan(small(), hypervisor_class(), driver(), [poor])
    assert (refused.verdict, refused.findings[0].code) == ("REFUSED", "NODE_LACKS")
    assert "poor" in refused.findings[0].message
    assert plan(small(), hypervisor_class(), driver(), [poor, rich]).verdict == "SATISFIED"


def test_what_varies_between_hosts_becomes_a_need_of_the_host():
    spec = small(cpu={"sockets": 1, "dedicatedCpuPlacement": True})
    made = plan(spec, hypervisor_class(), driver({"cpu.pin": {}}), [node("a", "kvm")])
    assert made.host_needs == (
        "test.example.org/driver",
        "test.example.org/accelerator.kvm",
        "test.example.org/capability.cpu.pin",
    )


def test_facts_of_an_object():
    facts = node_facts(
        {
            "metadata": {"name": "n1"},
            "status": {
                "drivers": [
                    {
                        "driver": "test.example.org",
                        "healthy": True,
                        "version": "1",
                        "accelerators": ["tcg"],
                        "hriMinor": 1,
                        "capabilities": {"a.b": {"state": "no", "reason": "why"}, "c.d": {"values": ["x"], "max": 3}},
                    },
                    {"healthy": True},
                    "garbage",
                ]
            },
        }
    )
    found = facts.drivers["test.example.org"]
    assert (facts.name, found.healthy, found.accelerators) == ("n1", True, ("emulation",))
    assert found.narrowed == {"a.b": Narrowing(state=False, reason="why"), "c.d": Narrowing(values=("x",), max=3)}
    assert node_facts({"status": {"drivers": 7}}) == NodeFacts("")


@pytest.mark.parametrize(
    ("more", "policy", "code"),
    [
        ({"launchMode": "external"}, Policy(on_cluster=True), "EXTERNAL_ON_CLUSTER"),
        ({"launchMode": "external"}, Policy(), ""),
        ({"hri": {"minMinor": 9, "maxMinor": 9}}, Policy(), "SKEW"),
        ({}, Policy(namespace="prod"), "NAMESPACE_FORBIDDEN"),
        ({}, Policy(namespace="dev"), ""),
    ],
)
def test_the_class_and_the_home(more: dict[str, Any], policy: Policy, code: str):
    made = plan(small(), hypervisor_class(policy={"namespaces": ["dev"]}), driver(**more), policy=policy)
    assert [finding.code for finding in made.findings] == ([code] if code else [])


def test_plans_are_stored_and_read_back():
    made = ask(small(devices={"rng": {}}))
    text = encode(made)
    assert decode(text) == made
    assert encode(decode(text)) == text
    assert digest(made) == digest(decode(text))
    assert b'"planVersion":1' in text
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == text
    for broken in (b"", b"{}", text.replace(b'"planVersion":1', b'"planVersion":2')):
        with pytest.raises(PlanError):
            decode(broken)


def test_every_code_that_is_used_is_registered():
    room = Path(planner.__file__).parent
    used = {c for path in room.glob("*.py") for c in re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', path.read_text())}
    assert used <= {*CODES, "CREATE", "API_VERSION", "NEXT_START"}


EMPTY: st.SearchStrategy[dict[str, Any]] = st.builds(dict[str, Any])


def sampled(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


PIECES: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.fixed_dictionaries(
            {},
            optional={
                "sockets": st.integers(0, 40),
                "cores": st.integers(0, 9),
                "model": st.sampled_from(["host-model", "host-passthrough", "Penryn"]),
                "maxSockets": st.integers(1, 8),
            },
        ),
        "memory": st.fixed_dictionaries({"guest": st.sampled_from(["1Mi", "1Gi", "9Ti", "x"])}),
        "devices": st.fixed_dictionaries(
            {},
            optional={
                "autoattachGraphicsDevice": st.booleans(),
                "autoattachMemBalloon": st.booleans(),
                "blockMultiQueue": st.booleans(),
                "rng": EMPTY,
                "tpm": EMPTY,
                "disks": st.lists(
                    st.fixed_dictionaries(
                        {"name": st.text(max_size=3)},
                        optional={
                            "disk": st.fixed_dictionaries({"bus": st.sampled_from(["virtio", "sata", "usb"])}),
                            "serial": st.text(max_size=4),
                            "cache": st.sampled_from(["none", "writeback"]),
                        },
                    ),
                    max_size=4,
                ),
            },
        ),
        "firmware": sampled({}, {"bootloader": {"bios": {}}}, {"bootloader": {"efi": {}}}),
        "features": sampled({}, {"smm": {}}, {"hyperv": {"relaxed": {}}}),
    },
)
STATEMENTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from([c.id for c in registry() if c.kind == "flag" and c.needed_by and c.stage != "retired"]),
    EMPTY,
    max_size=30,
)
ORIGINS = st.sets(st.sampled_from(["domain.cpu", "domain.cpu.model", "domain.devices", "domain.firmware", "domain"]))


@settings(deadline=None)
@given(domain=PIECES, few=STATEMENTS, more=STATEMENTS, defaults=ORIGINS)
def test_more_capabilities_never_refuse_what_was_accepted(
    domain: dict[str, Any], few: dict[str, Any], more: dict[str, Any], defaults: set[str]
):
    origins = dict.fromkeys(defaults, "default")
    if plan({"domain": domain}, hypervisor_class(), driver(few), defaulted=origins).accepted:
        assert plan({"domain": domain}, hypervisor_class(), driver({**few, **more}), defaulted=origins).accepted


@settings(deadline=None)
@given(domain=PIECES, stated=STATEMENTS, defaults=ORIGINS)
def test_an_accepted_plan_is_whole(domain: dict[str, Any], stated: dict[str, Any], defaults: set[str]):
    spec = {"domain": domain}
    installed = driver(stated)
    made = plan(spec, hypervisor_class(), installed, defaulted=dict.fromkeys(defaults, "default"))
    assert encode(made) == encode(
        plan(spec, hypervisor_class(), installed, defaulted=dict.fromkeys(defaults, "default"))
    )
    assert set(made.confirmed) <= set(BASE) | set(stated)
    if made.accepted:
        needed = {need.capability.id for need in registry().needs(effective(spec, made), {})}
        degraded = {finding.capability for finding in made.findings}
        assert needed <= set(made.confirmed) | degraded
        assert made.resources.guest_memory_bytes > 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["domain", "devices", "disks", "cpu", "memory", "guest", "disk", "bus", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(spec=st.dictionaries(st.sampled_from(["domain", "volumes", "architecture", "x"]), JSON, max_size=4), cls=JSON)
def test_nothing_makes_it_raise(spec: dict[str, Any], cls: Any):
    odd = {"metadata": {"name": "odd"}, "spec": cls}
    assert plan(spec, odd, driver()).verdict in ("SATISFIED", "DEGRADED", "REFUSED", "UNKNOWN")

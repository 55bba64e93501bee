"""Admission of VirtualMachineInstances beyond the rules of their spec: defaults, and who may change what."""

import pytest

from anyvisor.admission.result import User
from anyvisor.admission.values import mapping
from tests.unit.admission.deciding import (
    CONTROLLER,
    NOW,
    UUID,
    Change,
    Json,
    World,
    both,
    causes,
    decide,
    drop,
    gates,
    put,
    vmi,
)

Causes = set[tuple[str, str]]
COMPONENT = User("system:serviceaccount:kubevirt:kubevirt-controller")


def test_defaults_of_a_small_vmi() -> None:
    result = decide(vmi(put("spec.volumes", [{"name": "extra", "emptyDisk": {"capacity": "1Gi"}}])))
    assert not result.allowed  # its disk has no volume any more
    spec = result.object["spec"]
    assert spec["architecture"] == "amd64"
    assert spec["domain"]["cpu"] == {"sockets": 1, "cores": 1, "threads": 1, "model": "host-model", "maxSockets": 4}
    assert spec["domain"]["devices"]["disks"][1] == {"name": "extra", "disk": {"bus": "sata"}}
    assert spec["domain"]["firmware"]["uuid"] == UUID
    assert spec["evictionStrategy"] == "None"
    assert result.object["metadata"]["finalizers"] == ["kubevirt.io/foregroundDeleteVirtualMachine"]
    assert result.object["status"]["phaseTransitionTimestamps"] == [
        {"phase": "Pending", "phaseTransitionTimestamp": NOW}
    ]


@pytest.mark.parametrize(
    ("architecture", "machine", "model", "bus"),
    [
        ("amd64", "q35", "host-model", "sata"),
        ("arm64", "virt", "host-passthrough", "virtio"),
        ("s390x", "s390-ccw-virtio", "host-model", "virtio"),
    ],
)
def test_defaults_by_architecture(architecture: str, machine: str, model: str, bus: str) -> None:
    spec = decide(vmi(put("spec.domain.devices.disks", [{"name": "root"}])), architecture=architecture).object["spec"]
    assert spec["domain"]["machine"]["type"] == machine
    assert spec["domain"]["cpu"]["model"] == model
    assert spec["domain"]["devices"]["disks"][0]["disk"]["bus"] == bus
    assert spec["domain"]["features"]["acpi"]["enabled"] is (architecture != "s390x")


@pytest.mark.parametrize(("architecture", "bus"), [("amd64", "sata"), ("arm64", "scsi"), ("s390x", "scsi")])
def test_a_cdrom_gets_a_bus_that_can_carry_it(architecture: str, bus: str) -> None:
    result = decide(vmi(put("spec.domain.devices.disks", [{"name": "root", "cdrom": {}}])), architecture=architecture)
    assert result.allowed
    assert result.object["spec"]["domain"]["devices"]["disks"][0]["cdrom"] == {
        "bus": bus,
        "readonly": True,
        "tray": "closed",
    }


@pytest.mark.parametrize(
    ("configuration", "path", "value"),
    [
        ({"cpuModel": "Haswell"}, ("cpu", "model"), "Haswell"),
        ({"machineType": "q35.x"}, ("machine", "type"), "q35.x"),
        ({"cpuRequest": "250m"}, ("resources", "requests", "cpu"), "250m"),
        ({"liveUpdateConfiguration": {"maxCpuSockets": 7}}, ("cpu", "maxSockets"), 7),
        ({"vmRolloutStrategy": "Stage"}, ("cpu", "maxSockets"), None),
    ],
)
def test_defaults_from_the_configuration(configuration: Json, path: tuple[str, ...], value: object) -> None:
    *holders, last = path
    holder = decide(vmi(), **configuration).object["spec"]["domain"]
    for step in holders:
        holder = mapping(holder.get(step))
    assert holder.get(last) == value


@pytest.mark.parametrize(
    ("written", "guest"),
    [
        ({"resources": {"requests": {"memory": "1Gi"}}}, "1Gi"),
        ({"resources": {"limits": {"memory": "2Gi"}}}, "2Gi"),
        ({"memory": {"hugepages": {"pageSize": "2Mi"}}}, "2Mi"),
    ],
)
def test_guest_memory_is_derived(written: Json, guest: str) -> None:
    def change(obj: Json) -> None:
        del obj["spec"]["domain"]["memory"]
        obj["spec"]["domain"].update(written)

    assert decide(vmi(change)).object["spec"]["domain"]["memory"]["guest"] == guest


@pytest.mark.parametrize(
    ("image", "policy"),
    [("a", "Always"), ("a:latest", "Always"), ("a:1", "IfNotPresent"), ("a@sha256:0", "IfNotPresent")],
)
def test_pull_policy(image: str, policy: str) -> None:
    made = decide(vmi(put("spec.volumes[0].containerDisk.image", image))).object
    assert made["spec"]["volumes"][0]["containerDisk"]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("network", "binding"),
    [
        ({}, "bridge"),
        ({"defaultNetworkInterface": "masquerade"}, "masquerade"),
        ({"defaultNetworkInterface": "slirp"}, ""),
        ({"permitBridgeInterfaceOnPodNetwork": False}, ""),
    ],
)
def test_default_network(network: Json, binding: str) -> None:
    bare = vmi(both(drop("spec.networks"), drop("spec.domain.devices.interfaces")))
    result = decide(bare, network=network)
    assert result.allowed is bool(binding)
    if binding:
        assert result.object["spec"]["domain"]["devices"]["interfaces"] == [{"name": "default", binding: {}}]
    else:
        assert (result.code, result.causes) == (400, ())


def test_enlightenments_bring_what_they_need() -> None:
    made = decide(vmi(put("spec.domain.features.hyperv", {"synictimer": {}, "evmcs": {}}))).object["spec"]["domain"]
    on = {name for name, state in made["features"]["hyperv"].items() if state["enabled"]}
    assert on == {"synictimer", "synic", "vpindex", "evmcs", "vapic"}
    assert made["cpu"]["features"] == [{"name": "vmx", "policy": "require"}]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (put("spec.terminationGracePeriodSeconds", -1), "power cut"),
        (put("spec.domain.devices.interfaces[0].macAddress", "01:00:00:00:00:01"), "multicast"),
        (put("spec.domain.devices.interfaces[0].macAddress", "00:00:00:00:00:00"), "all zeros"),
        (
            both(
                put("spec.volumes[1]", {"name": "ci", "cloudInitNoCloud": {"userData": "#cloud-config\na: [\n"}}),
            ),
            "YAML (line 3",
        ),
    ],
    ids=["grace", "multicast", "zeros", "yaml"],
)
def test_what_is_allowed_and_useless_is_warned_about(change: Change, word: str) -> None:
    result = decide(vmi(change))
    assert result.allowed
    assert any(word in warning for warning in result.warnings)


def test_cloud_init_that_is_no_cloud_config_is_let_be() -> None:
    script = put("spec.volumes[1]", {"name": "ci", "cloudInitNoCloud": {"userData": "#!/bin/sh\n[ a"}})
    assert not decide(vmi(script)).warnings


RUNNING = both(
    put("spec.domain.cpu", {"sockets": 1, "cores": 1, "threads": 1, "maxSockets": 4}),
    put("spec.domain.memory", {"guest": "1Gi", "maxGuest": "4Gi"}),
    put("status", {"phase": "Running", "nodeName": "one", "volumeStatus": [{"name": "root", "target": "vda"}]}),
)


def hotplugged(name: str = "more", bus: str = "scsi", source: Json | None = None) -> Change:
    def change(obj: Json) -> None:
        volume = source or {"persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}
        obj["spec"]["volumes"].append({"name": name, **volume})
        obj["spec"]["domain"]["devices"]["disks"].append({"name": name, "disk": {"bus": bus}})

    return change


CHANGES: list[tuple[str, Change, User, Causes]] = [
    ("nothing", put("metadata.labels", {"mine": "x"}), User("jane"), set()),
    ("spec by a user", put("spec.hostname", "a"), User("jane"), {("", "NotSupported")}),
    (
        "reserved label by a user",
        put("metadata.labels", {"kubevirt.io/nodeName": "x"}),
        User("jane"),
        {("", "NotSupported")},
    ),
    ("reserved label by us", put("metadata.labels", {"kubevirt.io/nodeName": "x"}), CONTROLLER, set()),
    ("spelling by a user", put("spec.domain.memory.guest", "1024Mi"), User("jane"), set()),
    ("empty by a user", put("spec.domain.resources", {}), User("jane"), set()),
    ("more sockets", put("spec.domain.cpu.sockets", 2), CONTROLLER, set()),
    ("other limit of sockets", put("spec.domain.cpu.maxSockets", 8), COMPONENT, {("", "Invalid")}),
    ("other limit of memory", put("spec.domain.memory.maxGuest", "8Gi"), COMPONENT, {("", "Invalid")}),
    ("volume", hotplugged(), COMPONENT, set()),
    ("volume on sata", hotplugged(bus="sata"), COMPONENT, {("", "Invalid")}),
    ("volume of an image", hotplugged(source={"containerDisk": {"image": "x"}}), COMPONENT, {("", "Invalid")}),
    ("first volume changed", put("spec.volumes[0].containerDisk.image", "b"), COMPONENT, {("", "Invalid")}),
    ("first disk changed", put("spec.domain.devices.disks[0].disk.bus", "sata"), COMPONENT, {("", "Invalid")}),
    ("volume without disk", put("spec.volumes[1]", {"name": "x", "emptyDisk": {}}), COMPONENT, {("", "Invalid")}),
    (
        "utility volume",
        put("spec.utilityVolumes", [{"name": "u", "claimName": "c"}]),
        COMPONENT,
        {("spec.utilityVolumes", "Invalid")},
    ),
    ("hypervisor", put("spec.hypervisor", "A B"), COMPONENT, {("spec.hypervisor", "Invalid")}),
    ("choice", put("spec.dnsPolicy", "Mine"), COMPONENT, {("", "")}),
]


@pytest.mark.parametrize(("change", "user", "wanted"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES])
def test_update(change: Change, user: User, wanted: Causes) -> None:
    result = decide(vmi(both(RUNNING, change)), operation="UPDATE", old=vmi(RUNNING), user=user)
    assert causes(result) == wanted


@pytest.mark.parametrize(("user", "phase"), [(User("jane"), "Running"), (CONTROLLER, "Failed"), (COMPONENT, "Failed")])
def test_only_the_control_plane_writes_status(user: User, phase: str) -> None:
    changed = vmi(both(RUNNING, put("status.phase", "Failed")))
    result = decide(changed, operation="UPDATE", old=vmi(RUNNING), user=user)
    assert result.allowed
    assert result.object["status"]["phase"] == phase


HANDLER = "system:serviceaccount:kubevirt:kubevirt-handler"
NODE = "authentication.kubernetes.io/node-name"


@pytest.mark.parametrize(
    ("user", "old", "new", "allowed"),
    [
        (User("system:anyvisor:agent:one"), RUNNING, RUNNING, True),
        (User("system:anyvisor:agent:two"), RUNNING, RUNNING, False),
        (User(HANDLER, extra={NODE: ["one"]}), RUNNING, RUNNING, True),
        (User(HANDLER), RUNNING, RUNNING, False),
        (
            User("system:anyvisor:agent:two"),
            both(RUNNING, put("status.migrationState", {"targetNode": "two"})),
            both(RUNNING, put("status.migrationState", {"targetNode": "two"})),
            True,
        ),
        (
            User("system:anyvisor:agent:one"),
            RUNNING,
            both(RUNNING, put("status.migrationState", {"targetNode": "two"})),
            False,
        ),
    ],
    ids=["own", "other", "own account", "unbound account", "target", "sets the target"],
)
def test_an_agent_writes_what_runs_on_its_node(user: User, old: Change, new: Change, allowed: bool) -> None:
    assert decide(vmi(new), operation="UPDATE", old=vmi(old), user=user).allowed is allowed


def test_the_restriction_to_nodes_can_be_switched_off() -> None:
    user = User("system:anyvisor:agent:two")
    assert decide(
        vmi(RUNNING), operation="UPDATE", old=vmi(RUNNING), user=user, **gates(off=["NodeRestriction"])
    ).allowed


def test_deletes_are_allowed() -> None:
    assert decide(vmi(), operation="DELETE").allowed


def preset(name: str, **domain: object) -> Json:
    return {
        "kind": "VirtualMachineInstancePreset",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"size": "big"}}, "domain": domain},
    }


BIG = put("metadata.labels", {"size": "big"})


def test_a_preset_fills_in() -> None:
    result = decide(vmi(BIG), world=World(preset("p", cpu={"cores": 4})))
    assert result.object["spec"]["domain"]["cpu"]["cores"] == 4
    assert result.object["metadata"]["annotations"]["virtualmachinepreset.kubevirt.io/p"] == "kubevirt.io/v1"
    assert any("deprecated" in warning for warning in result.warnings)


def test_presets_that_contradict_each_other() -> None:
    result = decide(vmi(BIG), world=World(preset("p", cpu={"cores": 4}), preset("q", cpu={"cores": 8})))
    assert (result.allowed, result.code) == (False, 422)
    assert "p and q" in result.message

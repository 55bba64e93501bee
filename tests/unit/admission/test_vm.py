"""Admission of VirtualMachines beyond the rules of their template."""

from typing import Any

import pytest

from tests.unit.admission.deciding import (
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
    vm,
)

Causes = set[tuple[str, str]]
DOMAIN = "spec.template.spec.domain"
TEMPLATE: Json = {
    "metadata": {"name": "dv"},
    "spec": {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}},
}


def data_volume(**spec: Any) -> Change:
    """A data volume template with this spec, used by a volume."""
    template = {"metadata": {"name": "dv"}, "spec": spec}
    return both(
        put("spec.dataVolumeTemplates", [template]),
        put("spec.template.spec.volumes[0]", {"name": "root", "dataVolume": {"name": "dv"}}),
    )


CREATES: list[tuple[str, Change, Causes]] = [
    ("no run strategy", drop("spec.runStrategy"), {("spec.running", "Invalid")}),
    ("both", put("spec.running", True), {("spec.running", "Invalid")}),
    ("unknown strategy", put("spec.runStrategy", "Never"), {("spec.runStrategy", "Invalid")}),
    ("no template", drop("spec.template"), {("spec.template", "Required")}),
    ("a rule of the template", put(f"{DOMAIN}.machine.type", "pc"), {(f"{DOMAIN}.machine.type", "Invalid")}),
    (
        "a label of the template",
        put("spec.template.metadata.labels", {"kubevirt.io/nodeName": "n"}),
        {("spec.template.metadata.labels", "NotSupported")},
    ),
    ("growing beyond", put(f"{DOMAIN}.memory.maxGuest", "64Mi"), {(f"{DOMAIN}.memory.guest", "Invalid")}),
    (
        "data volume without size",
        data_volume(source={"blank": {}}),
        {("spec.dataVolumeTemplate[0].PVC.Storage", "Invalid")},
    ),
    (
        "data volume without source",
        data_volume(storage={}),
        {("spec.dataVolumeTemplate[0].source.sourceRef", "Invalid")},
    ),
    (
        "data volume with two sources",
        data_volume(storage={}, source={"blank": {}, "http": {}}),
        {("spec.dataVolumeTemplate[0].source", "Invalid")},
    ),
    (
        "data volume without a group",
        data_volume(storage={"dataSource": {"kind": "K", "name": "n"}}),
        {("", "")},
    ),
    (
        "data volume that is not used",
        put("spec.dataVolumeTemplates", [TEMPLATE]),
        {("spec.dataVolumeTemplate[0]", "Required")},
    ),
    (
        "data volume elsewhere",
        both(
            data_volume(**TEMPLATE["spec"]),
            put("spec.dataVolumeTemplates[0].metadata", {"name": "dv", "namespace": "other"}),
        ),
        {("spec.dataVolumeTemplates[0]", "Invalid")},
    ),
    ("matcher that names nothing", put("spec.instancetype", {}), {("spec.instancetype", "NotFound")}),
    (
        "matcher that names and infers",
        put("spec.preference", {"name": "a", "inferFromVolume": "root"}),
        {("spec.preference.name", "NotSupported")},
    ),
    ("hypervisor", put("spec.template.spec.hypervisor", "A B"), {("spec.template.spec.hypervisor", "Invalid")}),
    # A discontinued binding is told alone, before the other rules, where clients expect it: as if in an instance.
    (
        "discontinued",
        both(put(f"{DOMAIN}.devices.interfaces[0].slirp", {}), put(f"{DOMAIN}.machine.type", "pc")),
        {("spec.domain.devices.interfaces[0].slirp", "Invalid")},
    ),
    ("probe of no port", put("spec.template.spec.readinessProbe.tcpSocket", {}), {("", "")}),
]


@pytest.mark.parametrize(("change", "wanted"), [row[1:] for row in CREATES], ids=[row[0] for row in CREATES])
def test_create(change: Change, wanted: Causes) -> None:
    assert causes(decide(vm(change))) == wanted


def test_defaults_of_a_new_vm() -> None:
    result = decide(vm())
    spec = result.object["spec"]["template"]["spec"]
    assert result.allowed
    assert spec["architecture"] == "amd64"
    assert spec["domain"]["machine"]["type"] == "q35"
    assert spec["domain"]["firmware"] == {"uuid": UUID, "serial": UUID}
    assert result.object["spec"]["template"]["metadata"]["annotations"] == {"kubevirt.io/pci-topology-version": "v3"}
    sources = {default.path: default.source for default in result.defaults}
    assert sources["spec.template.spec.domain.machine.type"] == "built-in default for amd64"


def test_the_source_of_a_configured_default() -> None:
    result = decide(vm(), architectureConfiguration={"amd64": {"machineType": "pc-q35-9.0"}})
    sources = {default.path: default.source for default in result.defaults}
    assert (
        sources["spec.template.spec.domain.machine.type"]
        == "cluster configuration architectureConfiguration.amd64.machineType"
    )


def test_an_update_gives_no_new_identity() -> None:
    old = vm()
    result = decide(vm(put("metadata.labels", {"a": "b"})), operation="UPDATE", old=old)
    assert "firmware" not in result.object["spec"]["template"]["spec"]["domain"]


def test_a_vm_that_is_being_deleted_is_let_be() -> None:
    broken = vm(both(put("metadata.deletionTimestamp", NOW), put("spec.runStrategy", "Never")))
    assert decide(broken, operation="UPDATE", old=broken).allowed


def test_running_is_deprecated() -> None:
    result = decide(vm(both(drop("spec.runStrategy"), put("spec.running", True))))
    assert result.warnings == ["spec.running is deprecated, please use spec.runStrategy instead."]


@pytest.mark.parametrize(
    ("gate", "allowed"), [(gates(), True), (gates(off=["DecentralizedLiveMigration"]), False)], ids=["on", "off"]
)
def test_receiving_a_migration(gate: Json, allowed: bool) -> None:
    assert decide(vm(put("spec.runStrategy", "WaitAsReceiver")), **gate).allowed is allowed


def test_a_field_of_ours_survives_typed_clients() -> None:
    old = vm(put("spec.template.spec.hypervisor", "ch"))
    kept = decide(vm(), operation="UPDATE", old=old)
    assert kept.object["spec"]["template"]["spec"]["hypervisor"] == "ch"
    assert "spec.template.spec.hypervisor" in kept.warnings[0]
    for explicit in ("", "auto", "other"):
        changed = decide(vm(put("spec.template.spec.hypervisor", explicit)), operation="UPDATE", old=old)
        assert changed.object["spec"]["template"]["spec"]["hypervisor"] == explicit
        assert not changed.warnings


LOCKED = put("status.snapshotInProgress", "snap")
RESTORED = put("status.restoreInProgress", "rest")
UPDATES: list[tuple[str, Change, Change, Causes]] = [
    (
        "volumes under a snapshot",
        LOCKED,
        both(LOCKED, put("spec.template.spec.volumes[0].containerDisk.image", "b:1")),
        {("spec", "NotSupported")},
    ),
    ("start under a snapshot", LOCKED, both(LOCKED, put("spec.runStrategy", "Halted")), {("spec", "NotSupported")}),
    ("labels under a snapshot", LOCKED, both(LOCKED, put("metadata.labels", {"a": "b"})), set()),
    ("start under a restore", RESTORED, both(RESTORED, put("spec.runStrategy", "Halted")), {("spec", "NotSupported")}),
    (
        "the same start under a restore",
        RESTORED,
        both(RESTORED, drop("spec.runStrategy"), put("spec.running", True)),
        set(),
    ),
    (
        "instance type renamed, revision kept",
        put("spec.instancetype", {"name": "a", "revisionName": "r"}),
        put("spec.instancetype", {"name": "b", "revisionName": "r"}),
        {("spec.instancetype.revisionName", "Invalid")},
    ),
]


@pytest.mark.parametrize(("before", "after", "wanted"), [row[1:] for row in UPDATES], ids=[row[0] for row in UPDATES])
def test_update(before: Change, after: Change, wanted: Causes) -> None:
    assert causes(decide(vm(after), operation="UPDATE", old=vm(before))) == wanted


def requests(*wanted: Json, ready: bool = False) -> Change:
    return put("status", {"ready": ready, "volumeRequests": list(wanted)})


def add(name: str = "more", disk: Json | None = None, **source: Json) -> Json:
    options = {
        "name": name,
        "disk": {"name": name, **(disk or {"disk": {"bus": "scsi"}})},
        "volumeSource": source or {"persistentVolumeClaim": {"claimName": "c"}},
    }
    return {"addVolumeOptions": options}


REMOVE = {"removeVolumeOptions": {"name": "root"}}
REQUESTED: list[tuple[str, Change, Causes]] = [
    ("add", requests(add()), set()),
    ("nothing", requests({}), {("Status.volumeRequests", "Invalid")}),
    ("both", requests({**add(), **REMOVE}), {("Status.volumeRequests", "Invalid")}),
    ("twice", requests(add(), add()), {("Status.volumeRequests", "Invalid")}),
    ("remove twice", requests(REMOVE, REMOVE), {("Status.volumeRequests", "Invalid")}),
    ("name of another", requests(add("root")), {("Status.volumeRequests", "Invalid")}),
    ("on sata", requests(add(disk={"disk": {"bus": "sata"}})), {("Status.volumeRequests", "Invalid")}),
    ("lun on virtio", requests(add(disk={"lun": {"bus": "virtio"}})), {("Status.volumeRequests", "Invalid")}),
    ("cdrom", requests(add(disk={"cdrom": {"bus": "scsi"}})), {("Status.volumeRequests", "Invalid")}),
    (
        "io thread on scsi",
        requests(add(disk={"disk": {"bus": "scsi"}, "dedicatedIOThread": True})),
        {("Status.volumeRequests", "Invalid")},
    ),
    (
        "boot order 0",
        requests(add(disk={"disk": {"bus": "scsi"}, "bootOrder": 0})),
        {("spec.domain.devices.disks[1].bootOrder", "Invalid")},
    ),
    (
        "what results is wrong",
        requests(add("No_Name")),
        {("spec.template.spec.domain.devices.disks.domain.devices.disks[1].name", "Invalid")},
    ),
]


@pytest.mark.parametrize(("change", "wanted"), [row[1:] for row in REQUESTED], ids=[row[0] for row in REQUESTED])
@pytest.mark.parametrize("subresource", ["", "status"])
def test_volume_requests(change: Change, wanted: Causes, subresource: str) -> None:
    result = decide(vm(change), operation="UPDATE", old=vm(), subresource=subresource)
    assert causes(result) == wanted


def test_volume_requests_wait_for_a_migration() -> None:
    running: Json = {
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "machine", "namespace": "default"},
        "spec": vm()["spec"]["template"]["spec"],
        "status": {"migrationState": {"startTimestamp": "2026-05-31T00:00:00Z"}},
    }
    migrating = vm(requests(add(), ready=True))
    assert causes(decide(migrating, operation="UPDATE", old=vm(), world=World(running))) == {("spec", "NotSupported")}
    running["status"]["migrationState"]["endTimestamp"] = NOW
    assert decide(migrating, operation="UPDATE", old=vm(), world=World(running)).allowed


def claim(**labels: str) -> Json:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default", "labels": labels},
    }


INFERRED = both(
    put("spec.template.spec.volumes[0]", {"name": "root", "persistentVolumeClaim": {"claimName": "c"}}),
    put("spec.instancetype", {"inferFromVolume": "root"}),
)


def test_an_instance_type_is_inferred_from_labels() -> None:
    labels = {"instancetype.kubevirt.io/default-instancetype": "u1.small"}
    result = decide(vm(INFERRED), world=World(claim(**labels)))
    assert result.object["spec"]["instancetype"] == {"name": "u1.small"}


@pytest.mark.parametrize("world", [World(), World(claim())], ids=["no claim", "no label"])
def test_inference_that_fails_is_told(world: World) -> None:
    result = decide(vm(INFERRED), world=world)
    assert (result.allowed, result.code) == (False, 400)
    assert "spec.instancetype.inferFromVolume" in result.message


def test_inference_that_may_fail() -> None:
    lenient = both(INFERRED, put("spec.instancetype.inferFromVolumeFailurePolicy", "Ignore"))
    result = decide(vm(lenient), world=World(claim()))
    assert result.allowed
    assert "instancetype" not in result.object["spec"]


def test_what_was_accepted_is_not_judged_anew() -> None:
    old = vm(put("spec.template.spec.domain.rebootPolicy", "Reboot"))
    gated = gates(off=["RebootPolicy"])
    assert not decide(old, **gated).allowed
    labelled = both(put("spec.template.spec.domain.rebootPolicy", "Reboot"), put("metadata.labels", {"a": "b"}))
    assert decide(vm(labelled), operation="UPDATE", old=old, **gated).allowed
    changed = both(labelled, put("spec.template.spec.hostname", "a"))
    assert not decide(vm(changed), operation="UPDATE", old=old, **gated).allowed


@pytest.mark.parametrize(
    ("change", "architecture", "word"),
    [
        (put(f"{DOMAIN}.devices.sound", {"name": "s"}), "arm64", "sound"),
        (put(f"{DOMAIN}.features.hyperv", {"synic": {}, "vpindex": {"enabled": False}}), "amd64", "vpindex"),
        (drop(f"{DOMAIN}.memory"), "amd64", "memory"),
    ],
    ids=["architecture", "hyperv", "memory"],
)
def test_a_vm_that_cannot_start_is_warned_about(change: Change, architecture: str, word: str) -> None:
    result = decide(vm(change), architecture=architecture)
    assert result.allowed
    assert any(word in warning and "cannot start" in warning for warning in result.warnings)


def test_a_good_vm_gives_no_warnings() -> None:
    assert decide(vm()).warnings == []

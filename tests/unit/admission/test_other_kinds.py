"""Migrations, replica sets, presets, evictions, the configuration object, and what is not served."""

from typing import Any

import pytest

from anyvisor.admission import unserved
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.gates import GATES, Stage, enabled_gates
from tests.unit.admission.deciding import (
    CONTROLLER,
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
    vmi,
)

Causes = set[tuple[str, str]]
NONE: Causes = set()


def migration(change: Change | None = None) -> Json:
    made: Json = {
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m", "namespace": "default"},
        "spec": {"vmiName": "guest"},
    }
    if change is not None:
        change(made)
    return made


def guest(**status: object) -> Json:
    return vmi(put("status", {"phase": "Running", **status}))


def test_a_migration_is_labelled() -> None:
    made = decide(migration(), world=World(guest())).object
    assert made["metadata"]["labels"] == {"kubevirt.io/vmi-name": "guest"}
    assert made["metadata"]["finalizers"] == ["kubevirt.io/migrationJobFinalize"]


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (World(), "does not exist"),
        (World(guest(phase="Failed")), "Cannot migrate VMI in finalized state"),
        (
            World(guest(conditions=[{"type": "LiveMigratable", "status": "False", "reason": "R", "message": "M"}])),
            "Cannot migrate VMI, Reason: R, Message: M",
        ),
        (
            World(
                guest(),
                migration(both(put("metadata.labels", {"kubevirt.io/vmi-name": "guest"}), put("metadata.uid", "u"))),
            ),
            "in-flight migration detected. Active migration job (u) is currently already in progress for VMI guest.",
        ),
    ],
    ids=["missing", "final", "unmigratable", "in flight"],
)
def test_a_migration_that_cannot_be(world: World, words: str) -> None:
    result = decide(migration(), world=world)
    assert (result.allowed, result.code) == (False, 400)
    assert words in result.message


MIGRATIONS: list[tuple[str, Change, Json, Causes]] = [
    ("no name", drop("spec.vmiName"), {}, {("spec.vmiName", "Required")}),
    ("priority", put("spec.priority", "system-critical"), {}, {("spec.migrationPriority", "Forbidden")}),
    (
        "two ids",
        both(put("spec.sendTo", {"migrationID": "a"}), put("spec.receive", {"migrationID": "b"})),
        {},
        {("", "Invalid")},
    ),
    (
        "without gate",
        put("spec.receive", {"migrationID": "b"}),
        gates(off=["DecentralizedLiveMigration"]),
        {("", "NotSupported")},
    ),
]


@pytest.mark.parametrize(
    ("change", "configuration", "wanted"), [r[1:] for r in MIGRATIONS], ids=[r[0] for r in MIGRATIONS]
)
def test_migration(change: Change, configuration: Json, wanted: Causes) -> None:
    assert causes(decide(migration(change), world=World(guest()), **configuration)) == wanted


def test_the_controller_sets_the_priority() -> None:
    wanted = migration(put("spec.priority", "system-critical"))
    assert decide(wanted, world=World(guest()), user=CONTROLLER).allowed


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (put("metadata.annotations", {"a": "b"}), NONE),
        (put("spec.vmiName", "other"), {("", "NotSupported")}),
        (put("metadata.labels", {"kubevirt.io/vmi-name": "other"}), {("", "NotSupported")}),
        (both(put("metadata.labels", {}), put("status.phase", "Failed")), NONE),
    ],
    ids=["annotation", "spec", "label", "label of a finished one"],
)
def test_migration_update(change: Change, wanted: Causes) -> None:
    labelled = put("metadata.labels", {"kubevirt.io/vmi-name": "guest"})
    old = migration(labelled)
    assert causes(decide(migration(both(labelled, change)), operation="UPDATE", old=old)) == wanted


def replica_set(change: Change | None = None) -> Json:
    made: Json = {
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "r", "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": vmi()["spec"]},
        },
    }
    if change is not None:
        change(made)
    return made


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (put("spec.replicas", 3), NONE),
        (put("spec.selector", {"matchLabels": {"app": "b"}}), {("spec.selector", "Invalid")}),
        (
            put("spec.selector", {"matchExpressions": [{"key": "a", "operator": "Like"}]}),
            {("spec.selector", "Invalid")},
        ),
        (drop("spec.selector"), {("spec.selector", "Invalid")}),
        (drop("spec.template"), {("spec.template", "Required")}),
        (put("spec.template.spec.hostname", "."), {("spec.template.spec.hostname", "Invalid")}),
        (
            put("spec.template.spec.domain.memory", {"hugepages": {"pageSize": "2Mi"}}),
            {("spec.template.spec.domain.memory.guest", "Required")},
        ),
    ],
    ids=["fine", "mismatch", "operator", "no selector", "no template", "template", "pages alone"],
)
def test_replica_set(change: Change, wanted: Causes) -> None:
    assert causes(decide(replica_set(change))) == wanted


def test_scaling_a_replica_set_is_no_matter_of_its_template() -> None:
    broken = replica_set(put("spec.template.spec.hostname", "."))
    assert decide(broken, operation="UPDATE", old=broken, subresource="scale").allowed


@pytest.mark.parametrize(
    ("domain", "wanted"),
    [
        (dict[str, Any](), NONE),
        (None, {("spec.domain", "Required")}),
        ({"firmware": {"bootloader": {"bios": {}, "efi": {}}}}, {("spec.domain.firmware.bootloader", "Invalid")}),
    ],
)
def test_preset(domain: Json | None, wanted: Causes) -> None:
    obj = {"kind": "VirtualMachineInstancePreset", "metadata": {}, "spec": {"domain": domain}}
    assert causes(decide(obj)) == wanted


def pod(change: Change | None = None) -> Json:
    made: Json = {
        "kind": "Pod",
        "metadata": {
            "name": "launcher",
            "namespace": "default",
            "labels": {"kubevirt.io": "virt-launcher"},
            "annotations": {"kubevirt.io/domain": "guest"},
        },
        "spec": {"nodeName": "one"},
        "status": {"phase": "Running"},
    }
    if change is not None:
        change(made)
    return made


MIGRATABLE = {"conditions": [{"type": "LiveMigratable", "status": "True"}]}
EVICTION: Json = {"kind": "Eviction", "metadata": {"name": "launcher", "namespace": "default"}}
EVICTIONS: list[tuple[str, World, str]] = [
    ("no pod", World(), ""),
    ("another pod", World(pod(put("metadata.labels", {})), guest()), ""),
    ("finished", World(pod(put("status.phase", "Succeeded")), guest()), ""),
    ("no vmi", World(pod()), "cannot be found"),
    ("no strategy", World(pod(), guest(nodeName="one")), ""),
    (
        "migrate",
        World(
            pod(),
            vmi(both(put("spec.evictionStrategy", "LiveMigrate"), put("status", {"nodeName": "one", **MIGRATABLE}))),
        ),
        'Eviction triggered evacuation of VMI "default/guest"',
    ),
    (
        "cannot migrate",
        World(pod(), vmi(put("spec.evictionStrategy", "LiveMigrate"))),
        "VMI guest is configured with an eviction strategy but is not live-migratable",
    ),
    ("if possible", World(pod(), vmi(put("spec.evictionStrategy", "LiveMigrateIfPossible"))), ""),
    (
        "under way",
        World(pod(), vmi(both(put("spec.evictionStrategy", "External"), put("status.evacuationNodeName", "one")))),
        'Evacuation in progress: Eviction triggered evacuation of VMI "default/guest"',
    ),
    (
        "target pod",
        World(pod(), vmi(both(put("spec.evictionStrategy", "External"), put("status.nodeName", "two")))),
        "Eviction request for target Pod",
    ),
]


@pytest.mark.parametrize(("world", "words"), [row[1:] for row in EVICTIONS], ids=[row[0] for row in EVICTIONS])
def test_eviction(world: World, words: str) -> None:
    result = decide(EVICTION, world=world)
    assert result.allowed is not bool(words)
    if words:
        assert result.code == 429
        assert words in result.message


@pytest.mark.parametrize("dry_run", [False, True])
def test_an_eviction_marks_the_vmi(dry_run: bool) -> None:
    world = World(pod(), vmi(both(put("spec.evictionStrategy", "External"), put("status.nodeName", "one"))))
    (effect,) = decide(EVICTION, world=world, dry_run=dry_run).effects
    assert (effect.kind, effect.namespace, effect.name, effect.dry_run) == (
        "VirtualMachineInstance",
        "default",
        "guest",
        dry_run,
    )
    assert effect.patch == [{"op": "add", "path": "/status/evacuationNodeName", "value": "one"}]


def kubevirt(change: Change | None = None) -> Json:
    made: Json = {"kind": "KubeVirt", "metadata": {"name": "k", "namespace": "kubevirt"}, "spec": {"configuration": {}}}
    if change is not None:
        change(made)
    return made


CONFIGURATION = "spec.configuration"
CONFIGURATIONS: list[tuple[str, Change, Causes]] = [
    ("nothing", put("metadata.labels", {}), set()),
    (
        "unusable",
        put(f"{CONFIGURATION}.network.defaultNetworkInterface", "carrier-pigeon"),
        {(CONFIGURATION, "Invalid")},
    ),
    (
        "gate on and off",
        put(f"{CONFIGURATION}.developerConfiguration", gates("VSOCK", off=["VSOCK"])["developerConfiguration"]),
        {(f"{CONFIGURATION}.developerConfiguration.featureGates", "Forbidden")},
    ),
    ("overhead ratio", put(f"{CONFIGURATION}.additionalGuestMemoryOverheadRatio", "0.5"), {("", "NotSupported")}),
    ("overhead word", put(f"{CONFIGURATION}.additionalGuestMemoryOverheadRatio", "much"), {("", "NotSupported")}),
    (
        "ciphers with tls 1.3",
        put(f"{CONFIGURATION}.tlsConfiguration.ciphers", ["TLS_AES_128_GCM_SHA256"]),
        {(f"{CONFIGURATION}.tlsConfiguration.ciphers", "NotSupported")},
    ),
    (
        "unknown cipher",
        put(f"{CONFIGURATION}.tlsConfiguration", {"minTLSVersion": "VersionTLS12", "ciphers": ["ROT13"]}),
        {(f"{CONFIGURATION}.tlsConfiguration.ciphers#0", "NotSupported")},
    ),
    (
        "seccomp",
        put(f"{CONFIGURATION}.seccompConfiguration.virtualMachineInstanceProfile", {}),
        {(f"{CONFIGURATION}.seccompConfiguration.virtualMachineInstanceProfile.customProfile", "Invalid")},
    ),
    (
        "seccomp twice",
        put(
            f"{CONFIGURATION}.seccompConfiguration.virtualMachineInstanceProfile.customProfile",
            {"localhostProfile": "x", "runtimeDefaultProfile": True},
        ),
        {
            (f"{CONFIGURATION}.seccompConfiguration.virtualMachineInstanceProfile.customProfile.{key}", "Invalid")
            for key in ("localhostProfile", "runtimeDefaultProfile")
        },
    ),
    (
        "downtime without gate",
        put(f"{CONFIGURATION}.migrations.maxDowntimeMs", 5),
        {(f"{CONFIGURATION}.migrationConfiguration.maxDowntimeMs", "Invalid")},
    ),
    (
        "templates without gate",
        both(
            put(f"{CONFIGURATION}.virtTemplateDeployment.enabled", True),
            put(f"{CONFIGURATION}.developerConfiguration.disabledFeatureGates", ["Template"]),
        ),
        {(f"{CONFIGURATION}.virtTemplateDeployment.enabled", "Invalid")},
    ),
    (
        "manual roles without gate",
        both(
            put(f"{CONFIGURATION}.roleAggregationStrategy", "Manual"),
            put(f"{CONFIGURATION}.developerConfiguration.disabledFeatureGates", ["OptOutRoleAggregation"]),
        ),
        {(f"{CONFIGURATION}.roleAggregationStrategy", "Invalid")},
    ),
    ("patch", put("spec.customizeComponents.patches", [{"patch": "{"}]), {("", "NotSupported")}),
    (
        "certificates",
        put("spec.certificateRotateStrategy.selfSigned", {"ca": {"duration": "1h", "renewBefore": "2h"}}),
        {("", "Invalid")},
    ),
    (
        "certificates, both forms",
        put("spec.certificateRotateStrategy.selfSigned", {"ca": {"duration": "48h"}, "caRotateInterval": "48h"}),
        {("", "NotSupported")},
    ),
    (
        "eviction strategy",
        put(f"{CONFIGURATION}.evictionStrategy", "Never"),
        {(f"{CONFIGURATION}.evictionStrategy", "Invalid")},
    ),
    ("no replicas", put("spec.infra.replicas", 0), {("", "Invalid")}),
    (
        "placement",
        put(
            "spec.workloads.nodePlacement.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            {"nodeSelectorTerms": []},
        ),
        {("", "Invalid")},
    ),
]


@pytest.mark.parametrize(("change", "wanted"), [r[1:] for r in CONFIGURATIONS], ids=[r[0] for r in CONFIGURATIONS])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_configuration(change: Change, wanted: Causes, operation: str) -> None:
    assert causes(decide(kubevirt(change), operation=operation, old=kubevirt())) == wanted


def test_there_is_one_configuration() -> None:
    result = decide(kubevirt(), world=World(kubevirt()))
    assert not result.allowed
    assert "already a KubeVirt object" in result.message


@pytest.mark.parametrize(
    ("strategy", "workloads", "allowed"),
    [
        ("", [vm()], True),
        ("BlockUninstallIfWorkloadsExist", [vm()], False),
        ("BlockUninstallIfWorkloadsExist", [], True),
    ],
)
def test_deleting_the_configuration(strategy: str, workloads: list[Json], allowed: bool) -> None:
    old = kubevirt(both(put("spec.uninstallStrategy", strategy), put("status.phase", "Deployed")))
    assert decide(old, operation="DELETE", old=old, world=World(*workloads)).allowed is allowed


def test_warnings_about_gates() -> None:
    listed = gates("LiveMigration", "HotplugVolumes", "Macvtap", "Nonsense", "VSOCK")["developerConfiguration"]
    result = decide(kubevirt(put(f"{CONFIGURATION}.developerConfiguration", listed)))
    assert [warning.split()[2] for warning in result.warnings] == [
        "LiveMigration",
        "HotplugVolumes",
        "Macvtap",
        "Nonsense",
    ]


@pytest.mark.parametrize("stage", list(Stage))
def test_stages_of_gates(stage: Stage) -> None:
    names = [name for name, found in GATES.items() if found is stage]
    assert names
    for name in names:
        bare, on = enabled_gates({}), enabled_gates(gates(name)["developerConfiguration"])
        off = enabled_gates(gates(off=[name])["developerConfiguration"])
        contradicted = enabled_gates(gates(name, off=[name])["developerConfiguration"])
        assert (name in bare) is (stage in (Stage.BETA, Stage.GA))
        assert (name in on) is (stage is not Stage.DISCONTINUED)
        assert (name in off) is (stage is Stage.GA)
        assert (name in contradicted) is (stage is not Stage.DISCONTINUED)


def test_an_unusable_configuration_counts_as_empty() -> None:
    config = ClusterConfig.of({"imagePullPolicy": "Sometimes", "cpuModel": "Haswell"})
    assert config.cpu_model.value == "host-model"


@pytest.mark.parametrize("row", unserved.VM_ROWS, ids=[row.path for row in unserved.VM_ROWS])
def test_what_a_vm_is_not_served(row: unserved.Row) -> None:
    change = put(row.path, row.value if row.value is not None else [{}])
    found = unserved.check("VirtualMachine", vm(change))
    assert [(cause.field, cause.message) for cause in found] == [(row.path, f"{row.path}: {row.sentence}")]


@pytest.mark.parametrize("row", unserved.SPEC_ROWS, ids=[row.path for row in unserved.SPEC_ROWS])
def test_what_a_spec_is_not_served(row: unserved.Row) -> None:
    def change(obj: Json) -> None:
        *steps, last = row.path.split(".")
        holder = obj["spec"]
        for step in steps:
            name = step.removesuffix("[]")
            holder = holder.setdefault(name, [{}] if step != name else {})
            holder = holder[0] if step != name else holder
        holder[last] = {} if row.value is None else row.value

    path = "spec." + row.path.replace("[]", "[0]")
    assert [cause.field for cause in unserved.check("VirtualMachineInstance", vmi(change))] == [path]


@pytest.mark.parametrize(
    ("volume", "served"),
    [
        ({"persistentVolumeClaim": {"claimName": "c"}}, True),
        ({"dataVolume": {"name": "c"}}, True),
        ({"configMap": {"name": "c"}}, True),
        ({"secret": {"secretName": "c"}}, True),
        ({"serviceAccount": {"serviceAccountName": "c"}}, True),
        ({"downwardAPI": {"fields": []}}, True),
        ({"emptyDisk": {"capacity": "1Gi"}}, False),
        ({"cloudInitNoCloud": {"userData": "#"}}, False),
    ],
)
def test_which_volumes_are_served_as_filesystems(volume: Json, served: bool) -> None:
    def change(obj: Json) -> None:
        obj["spec"]["volumes"] = [{"name": "v", **volume}]
        obj["spec"]["domain"].setdefault("devices", {})["filesystems"] = [{"name": "v", "virtiofs": {}}]

    found = [cause.field for cause in unserved.check("VirtualMachineInstance", vmi(change))]
    assert found == ([] if served else ["spec.domain.devices.filesystems[0]"])


def test_what_is_served_is_let_through() -> None:
    assert unserved.check("VirtualMachine", vm()) == []
    assert unserved.check("VirtualMachineInstance", decide(vmi()).object) == []
    assert unserved.check("KubeVirt", kubevirt()) == []


@pytest.mark.parametrize("kind", unserved.KINDS)
def test_kinds_that_are_not_served(kind: str) -> None:
    assert [cause.field for cause in unserved.check(kind, {"kind": kind})] == ["kind"]
    assert unserved.check(kind, {"kind": kind}, {"kind": kind}) == []


def test_an_update_is_not_blamed_for_what_was_there() -> None:
    old = vm(put("spec.updateVolumesStrategy", "Migration"))
    assert unserved.check("VirtualMachine", old, old) == []
    assert len(unserved.check("VirtualMachine", old, vm())) == 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (put(f"{CONFIGURATION}.network.defaultNetworkInterface", "slirp"), "slirp"),
        (put(f"{CONFIGURATION}.architectureConfiguration.arm64.machineType", "pc"), "arm64"),
        (put(f"{CONFIGURATION}.architectureConfiguration.ppc64le", {}), "ppc64le"),
        (put(f"{CONFIGURATION}.minCPUModel", "Penryn"), "minCPUModel"),
        (put(f"{CONFIGURATION}.instancetype.referencePolicy", "expand"), "referencePolicy expand is not served yet"),
        (put(f"{CONFIGURATION}.mediatedDevicesConfiguration.mediatedDevicesTypes", []), "mediatedDeviceTypes"),
    ],
)
def test_settings_that_are_of_no_use(change: Change, word: str) -> None:
    result = decide(kubevirt(change))
    assert result.allowed
    assert [word in warning for warning in result.warnings] == [True]

"""Replays recorded passes over a VirtualMachineInstance."""

import copy
from typing import Any

from replaying import launches, worlds

from anyvisor.api.meta import Json, controller_of, name, namespace
from anyvisor.controller.outcome import Change, Create, Outcome
from anyvisor.controller.settings import Settings
from anyvisor.controller.vmi.reconcile import reconcile_vmi
from anyvisor.controller.vmi.world import VmiWorld

HELPER_VOLUMES = {
    "container-disks",
    "ephemeral-disks",
    "hotplug-disks",
    "hugepages",
    "hugetblfs-dir",
    "hook-sidecar-sockets",
    "l",
    "launcher-volume",
    "libvirt-runtime",
    "log",
    "network-info-annotation",
    "private",
    "private-libvirt",
    "private-libvirt-qemu",
    "public",
    "sockets",
    "virt-bin-share-dir",
    "virtiofs-containers",
}
"""Volumes that a launcher has for its own purposes; those of the guest's disks are compared."""


def replay(case: Json) -> list[str]:
    """The differences between the recorded outcome and ours; empty when they are equal."""
    want = case["expect"]
    world = world_of(case)
    if world is None:
        asked = bool(want.get("created") or want.get("changed") or want.get("deleted"))
        return ["the case has no instance of its name, but asks for writes"] if asked else []
    outcome = reconcile_vmi(world)
    found = worlds.differences(sorted(want["events"]), worlds.events(outcome), "events")
    found += worlds.differences("error" in want, outcome.problem is not None, "error")
    found += worlds.differences(sorted(want.get("deleted", [])), worlds.deletes(outcome), "deleted")
    found += _created(want.get("created", []), worlds.creates(outcome), world.vmi)
    return found + _changed(want.get("changed", {}), outcome, case)


def world_of(case: Json) -> VmiWorld | None:
    """The world that a case tells of; None where its instance does not exist."""
    vmi = worlds.subject(case, "VirtualMachineInstance")
    if vmi is None:
        return None
    settings = Settings(case["in"].get("config") or {})
    owner = controller_of(vmi) or {}
    vms = worlds.by_name(worlds.of_kind(case, "VirtualMachine"))
    space = worlds.by_name(worlds.of_kind(case, "Namespace")).get(namespace(vmi), {})
    return VmiWorld(
        vmi=vmi,
        now=worlds.NOW,
        plan=lambda _: launches.launch(settings.emulation),
        pods=worlds.of_kind(case, "Pod"),
        owner=vms.get(owner.get("name", "")),
        data_volumes=worlds.by_name(worlds.of_kind(case, "DataVolume")),
        claims=worlds.by_name(worlds.of_kind(case, "PersistentVolumeClaim")),
        storage_classes=worlds.by_name(worlds.of_kind(case, "StorageClass")),
        storage_profiles=worlds.by_name(worlds.of_kind(case, "StorageProfile")),
        importers=worlds.of_kind(case, "CDI"),
        importer_config=next(iter(worlds.of_kind(case, "CDIConfig")), None),
        migrations=worlds.of_kind(case, "VirtualMachineInstanceMigration"),
        nodes=worlds.of_kind(case, "Node"),
        namespace_labels=space.get("metadata", {}).get("labels", {}),
        quotas=worlds.quotas(case),
        settings=settings,
        launcher_image=launches.IMAGE,
    )


def _created(want: list[Json], have: list[Create], vmi: Json) -> list[str]:
    if len(want) != len(have):
        ours = [f"{one.resource.plural}/{name(one.object)}" for one in have]
        return [f"created: {ours} instead of {[one['kind'] for one in want]}"]
    found: list[str] = []
    for expected, ours in zip(want, have, strict=True):
        if expected["kind"] != ours.resource.plural:
            found.append(f"created: a {ours.resource.plural} instead of a {expected['kind']}")
        elif expected["kind"] == "pods":
            found += worlds.differences(
                _pod_facts(expected, expected["pod"], vmi), _own_pod_facts(ours.object, vmi), "pod"
            )
        else:
            wanted = {"metadata": expected["metadata"], "spec": expected["spec"]}
            metadata = {key: value for key, value in ours.object["metadata"].items() if key not in _NAMING}
            got = {"metadata": metadata, "spec": ours.object["spec"]}
            found += worlds.differences(wanted, got, expected["kind"])
        prefix = expected.get("generateName", "")
        if prefix and not name(ours.object).startswith(prefix):
            found.append(f"created: {name(ours.object)!r} does not begin with {prefix!r}")
    return found


_NAMING = {"name", "namespace", "generateName"}


def _pod_facts(pod: Json, parts: Json, vmi: Json) -> Json:
    volumes = [volume for volume in parts["volumes"] if volume not in HELPER_VOLUMES]
    annotations = dict(pod["metadata"].get("annotations", {}))
    annotations.pop("kubevirt.io/memory-overhead-bytes", None)
    return {
        "labels": pod["metadata"].get("labels"),
        "annotations": annotations,
        "owners": pod["metadata"].get("ownerReferences"),
        "affinity": parts.get("affinity"),
        "claims": parts.get("claims"),
        "nodeSelector": parts.get("nodeSelector"),
        "resources": launches.memory_without_overhead(pod, parts.get("resources", {}), vmi),
        "volumes": volumes,
    }


def _own_pod_facts(pod: Json, vmi: Json) -> Json:
    spec = pod["spec"]
    claims = [one["persistentVolumeClaim"]["claimName"] for one in spec["volumes"] if "persistentVolumeClaim" in one]
    parts = {
        "affinity": spec.get("affinity"),
        "claims": claims,
        "nodeSelector": spec.get("nodeSelector"),
        "resources": spec["containers"][0]["resources"],
        "volumes": [one["name"] for one in spec["volumes"]],
    }
    return _pod_facts(pod, parts, vmi)


def _changed(want: Json, outcome: Outcome, case: Json) -> list[str]:
    before: dict[str, Json] = {}
    after: dict[str, Json] = {}
    for write in outcome.writes:
        if not isinstance(write, Change):
            continue
        key = f"{write.resource.plural}/{name(write.before)}"
        before.setdefault(key, _original(case, write))
        if write.status:
            base = after.get(key, before[key])
            after[key] = {**base, "status": write.after["status"]}
        else:
            status = {} if write.resource.plural != "pods" else {"status": after.get(key, before[key]).get("status")}
            after[key] = {**write.after, **status}
    found: list[str] = []
    for key in sorted({*want, *after}):
        changed = _flat(before[key], after[key]) if key in after else {}
        found += _compare_object(key, want.get(key, {}), changed)
    return found


def _original(case: Json, write: Change) -> Json:
    kinds = {"pods": "Pod", "virtualmachineinstances": "VirtualMachineInstance"}
    found = worlds.of_kind(case, kinds.get(write.resource.plural, write.resource.kind))
    return next((one for one in found if name(one) == name(write.before)), copy.deepcopy(write.before))


def _flat(before: Json, after: Json) -> Json:
    """The fields of metadata and status that differ, as the recording names them."""
    result: Json = {}
    for part in ("metadata", "status"):
        old, new = before.get(part) or {}, after.get(part) or {}
        for field in sorted({*old, *new}):
            if worlds.differences(old.get(field), new.get(field)):
                result[f"{part}.{field}"] = new.get(field)
    return result


def _compare_object(key: str, want: Json, have: Json) -> list[str]:
    found: list[str] = []
    for field in sorted({*want, *have}):
        expected, ours = want.get(field), have.get(field)
        if field == "status.conditions":
            expected = sorted(expected) if expected else expected
            ours = worlds.conditions({"conditions": ours}) if ours else ours
        elif field == "status.memory":
            expected, ours = _without_overhead(expected), _without_overhead(ours)
        elif field in {"status.hypervisor", "status.migrationTransport"}:
            continue
        found += worlds.differences(expected, ours, f"{key} {field}")
    return found


def _without_overhead(memory: Any) -> Any:
    """The overhead is the driver's; that there is one counts."""
    if not isinstance(memory, dict) or "memoryOverhead" not in memory:
        return memory
    return {**memory, "memoryOverhead": "present"}

"""The claim that keeps firmware variables and TPM state over restarts."""

from typing import Final

from anyvisor.api.meta import Json, is_deleting, labels, list_at, name, namespace, object_at, owner_references, text_at
from anyvisor.api.names import SUBDOMAIN_MAX, bounded, short_hash
from anyvisor.controller import words
from anyvisor.controller.outcome import Create, Delete, Problem
from anyvisor.controller.vmi.owner import vmi_reference
from anyvisor.controller.vmi.world import VmiPass
from anyvisor.kube.resources import PVCS

VOLUME_NAME: Final = "persistent-state-for-this-vm"
SIZE: Final = "10Mi"


def is_needed(vmi: Json) -> bool:
    """Whether the instance keeps state of its firmware, its TPM or its tracking of changed blocks."""
    tpm = object_at(vmi, "spec", "domain", "devices", "tpm")
    efi = object_at(vmi, "spec", "domain", "firmware", "bootloader", "efi")
    kept_tpm = tpm.get("persistent") is True and tpm.get("enabled") is not False
    tracking = text_at(vmi, "status", "changedBlockTracking", "state") in {"Initializing", "Enabled"}
    return kept_tpm or efi.get("persistent") is True or tracking


def find(run: VmiPass) -> Json | None:
    """The claim of this instance's name; one made before labels were used is known by its name."""
    wanted = name(run.world.vmi)
    old: Json | None = None
    for claim in run.world.claims.values():
        if is_deleting(claim):
            continue
        if labels(claim).get(words.STATE_CLAIM_LABEL) == wanted:
            return claim
        if name(claim) == f"{words.STATE_CLAIM_LABEL}-{wanted}":
            old = claim
    return old


def ensure(run: VmiPass) -> bool:
    """Make the claim, or delete one that is no longer needed; True when the pod may be made."""
    claim = find(run)
    if not is_needed(run.world.vmi):
        if claim is not None:
            run.draft.writes.append(Delete(PVCS, claim))
        return True
    if claim is None:
        _create(run)
        return False
    return _is_ready(run, claim)


def _create(run: VmiPass) -> None:
    storage_class = _storage_class(run)
    if not storage_class:
        run.problem = Problem(
            "FailedBackendStorageCreate",
            "Persistent firmware or TPM state needs a claim, but no StorageClass is the default; mark one as "
            "default, or set vmStateStorageClass in the KubeVirt configuration.",
        )
        return
    vmi = run.world.vmi
    owners = owner_references(vmi) or [vmi_reference(vmi)]
    claim: Json = {
        "apiVersion": PVCS.api_version,
        "kind": PVCS.kind,
        "metadata": {
            "name": bounded(f"{words.STATE_CLAIM_LABEL}-{name(vmi)}", short_hash(owners[0]["uid"]), SUBDOMAIN_MAX),
            "namespace": namespace(vmi),
            "labels": {words.STATE_CLAIM_LABEL: name(vmi), words.APPLY_STORAGE_PROFILE_LABEL: "true"},
            "ownerReferences": owners,
        },
        "spec": {
            "accessModes": [_access_mode(run, storage_class)],
            "resources": {"requests": {"storage": SIZE}},
            "storageClassName": storage_class,
            "volumeMode": "Filesystem",
        },
    }
    run.draft.writes.append(Create(PVCS, claim, None, "FailedBackendStorageCreate"))


def _storage_class(run: VmiPass) -> str:
    if run.world.settings.state_storage_class:
        return run.world.settings.state_storage_class
    marks = ("storageclass.kubevirt.io/is-default-virt-class", "storageclass.kubernetes.io/is-default-class")
    for mark in marks:
        for found in run.world.storage_classes.values():
            if object_at(found, "metadata", "annotations").get(mark) == "true":
                return name(found)
    return ""


def _access_mode(run: VmiPass, storage_class: str) -> str:
    default = "ReadWriteMany" if run.world.settings.state_storage_class else "ReadWriteOnce"
    profile = run.world.storage_profiles.get(storage_class, {})
    offered: set[str] = set()
    for entry in list_at(profile, "status", "claimPropertySets"):
        if entry.get("volumeMode") == "Filesystem":
            offered.update(list_at(entry, "accessModes"))
    return next((mode for mode in ("ReadWriteMany", "ReadWriteOnce") if mode in offered), default)


def _is_ready(run: VmiPass, claim: Json) -> bool:
    match text_at(claim, "status", "phase"):
        case "Bound":
            return True
        case "Lost":
            message = f"Claim {name(claim)!r} of the firmware and TPM state lost its volume; restore or delete it."
            run.problem = Problem("FailedBackendStorageProbe", message)
            return False
        case _:
            pass
    storage_class = run.world.storage_classes.get(text_at(claim, "spec", "storageClassName"))
    if storage_class is None:
        message = f"Claim {name(claim)!r} of the firmware and TPM state names no StorageClass that exists."
        run.problem = Problem("FailedBackendStorageProbe", message)
        return False
    if text_at(storage_class, "volumeBindingMode") == "WaitForFirstConsumer":
        return True
    message = f"Claim {name(claim)!r} of the firmware and TPM state is not bound yet."
    run.problem = Problem("BackendStorageNotReady", message)
    return False


def update_volume_status(run: VmiPass) -> None:
    """Show the claim among the instance's volumes."""
    claim = find(run)
    if claim is None:
        return
    info = {"claimName": name(claim), "accessModes": list_at(claim, "spec", "accessModes")}
    volumes: list[Json] = run.status.setdefault("volumeStatus", [])
    for entry in volumes:
        if str(entry.get("name", "")).startswith(words.STATE_CLAIM_LABEL):
            entry["name"] = VOLUME_NAME
            entry["persistentVolumeClaimInfo"] = {**object_at(entry, "persistentVolumeClaimInfo"), **info}
            return
    volumes.append({"name": VOLUME_NAME, "target": "", "persistentVolumeClaimInfo": info})

"""The VirtualMachineInstance that a VM starts, and its deletion when it stops."""

import uuid
from typing import Final

from anyvisor.api.meta import Json, generation, is_deleting, list_at, name, namespace, object_at, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.conditions import has, remove
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Create, Delete, Problem, normal
from anyvisor.controller.settings import Settings
from anyvisor.controller.vm import data_volumes, requests, revisions, types
from anyvisor.controller.vm.world import VmPass, template_spec
from anyvisor.kube.resources import VMIS

FIRMWARE_NAMESPACE: Final = uuid.UUID("6a1a24a1-4061-4607-8bf4-a3963d0c5895")
"""The name space in which KubeVirt derives the firmware uuid of a VM that states none from its name."""


class NotStartableError(Exception):
    """The template cannot become an instance; the message is a sentence for the VM's Failure condition."""


def start(run: VmPass) -> None:
    """Create the instance, once the volumes that it needs are there."""
    if not data_volumes.ensure(run):
        return
    conditions = list_at(run.vm, "status", "conditions")
    if has(conditions, words.MANUAL_RECOVERY_REQUIRED, "True"):
        return
    clear_restart_required(run.vm)
    shortage = types.shortage(run)
    if shortage:
        types.refuse(run, shortage)
        return
    try:
        vmi = build(run.effective, run.world.settings)
    except NotStartableError as cause:
        run.draft.problem = Problem(words.FAILED_CREATE, str(cause), retry=False)
        return
    types.prefer(run, vmi)
    vmi["status"] = {"virtualMachineRevisionName": revisions.record_revision(run)}
    done = normal(words.SUCCESSFUL_CREATE, f"Started by creating instance {name(vmi)}.")
    run.draft.writes.append(Create(VMIS, vmi, done, words.FAILED_CREATE))
    run.start_expected = True


def stop(run: VmPass) -> None:
    """Delete the instance; one that is being deleted already is left to its end."""
    vmi = run.vmi
    if vmi is None or is_deleting(vmi):
        return
    done = normal(words.SUCCESSFUL_DELETE, f"Stopped by deleting instance {name(vmi)} ({uid(vmi)}).")
    run.draft.writes.append(Delete(VMIS, vmi, done, words.FAILED_DELETE))
    clear_restart_required(run.vm)
    run.stop_expected = True


def clear_restart_required(vm: Json) -> None:
    """Drop the condition that a start makes true by itself."""
    conditions = list_at(vm, "status", "conditions")
    if conditions:
        remove(conditions, words.RESTART_REQUIRED)


def keep_firmware_uuid(vm: Json) -> None:
    """Write into the template which uuid the guest has, so that the VM keeps it when it is renamed or copied."""
    _add_firmware_uuid(template_spec(vm), name(vm))


def _add_firmware_uuid(spec: Json, vm_name: str) -> None:
    firmware = spec.setdefault("domain", {}).setdefault("firmware", {})
    if not firmware.get("uuid"):
        firmware["uuid"] = str(uuid.uuid5(FIRMWARE_NAMESPACE, vm_name))


def build(vm: Json, settings: Settings) -> Json:
    """The instance as the VM's template describes it now; raises NotStartableError."""
    template = object_at(vm, "spec", "template")
    spec = duplicate(template_spec(vm))
    if requests.wants_paused_start(vm):
        spec["startStrategy"] = "Paused"
    _add_firmware_uuid(spec, name(vm))
    _add_missing_disks(spec)
    _add_input(spec)
    _add_network(spec, settings)
    annotations = {**object_at(template, "metadata", "annotations"), words.VM_GENERATION: str(generation(vm))}
    annotations |= types.annotations(vm)
    if text_at(vm, "spec", "runStrategy") == "WaitAsReceiver":
        annotations[words.CREATE_MIGRATION_TARGET] = "true"
    metadata: Json = {
        "name": name(vm),
        "namespace": namespace(vm),
        "annotations": annotations,
        "finalizers": [words.VM_FINALIZER],
        "ownerReferences": [revisions.vm_reference(vm)],
    }
    labels = object_at(template, "metadata", "labels")
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": VMIS.api_version, "kind": VMIS.kind, "metadata": metadata, "spec": spec}


def _add_missing_disks(spec: Json) -> None:
    """A volume without a disk or file system becomes a disk with all defaults."""
    devices = spec["domain"].setdefault("devices", {})
    known = {entry.get("name") for key in ("disks", "filesystems") for entry in list_at(devices, key)}
    missing = [{"name": volume["name"]} for volume in list_at(spec, "volumes") if volume.get("name") not in known]
    if missing:
        devices["disks"] = [*list_at(devices, "disks"), *missing]


def _add_input(spec: Json) -> None:
    devices = spec["domain"]["devices"]
    if devices.get("autoattachInputDevice") is True and not list_at(devices, "inputs"):
        devices["inputs"] = [{"name": "default-0"}]


def _add_network(spec: Json, settings: Settings) -> None:
    devices = spec["domain"]["devices"]
    if devices.get("autoattachPodInterface") is False:
        return
    if list_at(spec, "networks") or list_at(devices, "interfaces"):
        return
    kind = text_at(settings.config, "network", "defaultNetworkInterface") or "bridge"
    if kind not in {"bridge", "masquerade"}:
        raise NotStartableError(
            f"network.defaultNetworkInterface in the KubeVirt configuration is {kind!r}, which cannot be "
            "attached by default; set it to bridge or masquerade, or list spec.template.spec.networks"
        )
    allowed = object_at(settings.config, "network").get("permitBridgeInterfaceOnPodNetwork")
    if kind == "bridge" and allowed is False:
        raise NotStartableError(
            "the VM lists no networks and the default, a bridge on the pod network, is not permitted by the "
            "KubeVirt configuration; add an interface of another binding to spec.template.spec"
        )
    devices["interfaces"] = [{"name": "default", kind: {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]

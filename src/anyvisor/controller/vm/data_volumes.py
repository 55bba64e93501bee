"""DataVolumes that a VM brings along (`spec.dataVolumeTemplates`), where their API is installed."""

from anyvisor.api.meta import Json, condition, list_at, name, namespace, object_at, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Create, EventType, Problem, normal
from anyvisor.controller.vm.revisions import vm_reference
from anyvisor.controller.vm.world import VmPass, template_spec, volumes
from anyvisor.kube.resources import Resource

DATA_VOLUMES = Resource("cdi.kubevirt.io", "v1beta1", "datavolumes", namespaced=True, kind="DataVolume")


def ensure(run: VmPass) -> bool:
    """Create what is missing and tell whether all DataVolumes of the VM can be used now."""
    ready = True
    for template in list_at(run.vm, "spec", "dataVolumeTemplates"):
        found = run.world.data_volumes.get(name(template))
        if found is None:
            ready = False
            _create(run, template)
        elif not _usable(run, found):
            ready = False
    return ready


def _create(run: VmPass, template: Json) -> None:
    metadata = duplicate(object_at(template, "metadata"))
    metadata["namespace"] = namespace(run.vm)
    metadata["ownerReferences"] = [vm_reference(run.vm)]
    metadata["labels"] = {**object_at(metadata, "labels"), words.CREATED_BY_LABEL: uid(run.vm)}
    volume = {
        "apiVersion": DATA_VOLUMES.api_version,
        "kind": DATA_VOLUMES.kind,
        "metadata": metadata,
        "spec": duplicate(object_at(template, "spec")),
    }
    done = normal("SuccessfulDataVolumeCreate", f"Created DataVolume {name(template)}.")
    run.draft.writes.append(Create(DATA_VOLUMES, volume, done, "FailedDataVolumeCreate"))


def _usable(run: VmPass, found: Json) -> bool:
    phase = text_at(found, "status", "phase")
    if phase in {"Succeeded", "WaitForFirstConsumer", "PendingPopulation"}:
        return True
    if phase == "Failed":
        run.draft.event(
            EventType.WARNING,
            words.DATA_VOLUME_IMPORT_FAILED,
            f"DataVolume {name(found)} failed to import its disk image.",
        )
    bound = condition(found, "Bound")
    over_quota = bound is not None and bound.get("status") != "True" and bound.get("reason") == "ErrExceededQuota"
    if phase == "Pending" and over_quota:
        message = f"DataVolume {name(found)} exceeds a quota of namespace {namespace(found)}."
        run.draft.event(EventType.WARNING, words.DATA_VOLUME_IMPORT_FAILED, message)
        run.draft.problem = Problem(words.FAILED_CREATE, message)
    return False


def used(run: VmPass) -> list[Json]:
    """The DataVolumes that the VM's volumes name and that exist."""
    names = [text_at(volume, "dataVolume", "name") for volume in volumes(template_spec(run.vm))]
    return [run.world.data_volumes[key] for key in names if key in run.world.data_volumes]


def broken(found: Json) -> bool:
    """Whether an import failed or stopped with an error."""
    running = condition(found, "Running")
    stopped = (
        running is not None
        and running.get("status") == "False"
        and running.get("reason") in {"Error", "ImagePullFailed"}
    )
    return stopped or text_at(found, "status", "phase") == "Failed"


def in_progress(found: Json) -> bool:
    """Whether a DataVolume is being filled; waiting unbound for its first consumer is not."""
    phase = text_at(found, "status", "phase")
    if phase in {"Succeeded", "PendingPopulation"}:
        return False
    bound = condition(found, "Bound")
    return phase != "WaitForFirstConsumer" or (bound is not None and bound.get("status") == "True")


def unbound_claim(run: VmPass) -> bool:
    """Whether a claim that the VM's volumes name exists and is not bound."""
    for volume in volumes(template_spec(run.vm)):
        claim = run.world.claims.get(claim_name(volume))
        if claim is not None and text_at(claim, "status", "phase") != "Bound":
            return True
    return False


def claim_name(volume: Json) -> str:
    """The claim behind a volume; empty when there is none. A DataVolume's claim has its name."""
    return (
        text_at(volume, "dataVolume", "name")
        or text_at(volume, "persistentVolumeClaim", "claimName")
        or text_at(volume, "memoryDump", "claimName")
    )

"""Whether the claims behind an instance's volumes can be used now."""

from dataclasses import dataclass

from anyvisor.api.meta import Json, conditions, controller_of, list_at, name, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.conditions import make, update
from anyvisor.controller.outcome import EventType, Problem
from anyvisor.controller.vm.data_volumes import claim_name
from anyvisor.controller.vmi.world import UnfinishedPassError, VmiPass, spec_volumes


class ClaimNotFoundError(Exception):
    """A volume names a claim that does not exist."""


class DataVolumeNotFoundError(Exception):
    """A claim belongs to a DataVolume that does not exist."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a volume can be attached, or waits for a first pod that uses it."""

    ready: bool
    waits_for_consumer: bool = False


def readiness(run: VmiPass, volume: Json) -> Readiness:
    """The state of one volume's claim; raises ClaimNotFoundError and DataVolumeNotFoundError."""
    wanted = claim_name(volume)
    claim = run.world.claims.get(wanted)
    if claim is None:
        raise ClaimNotFoundError(f"PersistentVolumeClaim {wanted!r} does not exist")
    owner = controller_of(claim)
    if owner is None or owner.get("kind") != "DataVolume":
        return Readiness(ready=True)
    volume_name = str(owner.get("name", ""))
    found = run.world.data_volumes.get(volume_name)
    if found is None:
        raise DataVolumeNotFoundError(f"claim {wanted!r} belongs to DataVolume {volume_name!r}, which does not exist")
    state = text_at(found, "status", "phase")
    return Readiness(state in {"Succeeded", "PendingPopulation"}, state == "WaitForFirstConsumer")


def all_ready(run: VmiPass) -> Readiness | None:
    """The state of all volumes together, or None where one is missing and the pass says so."""
    ready, waits = True, False
    for volume in spec_volumes(run.world.vmi):
        source = object_at(volume, "dataVolume") or object_at(volume, "persistentVolumeClaim")
        if not source or source.get("hotpluggable") is True:
            continue
        try:
            state = readiness(run, volume)
        except ClaimNotFoundError as cause:
            message = f"Volume {volume.get('name')!r}: {cause}; waiting for it to appear."
            run.draft.event(EventType.NORMAL, words.PVC_NOT_FOUND, message)
            run.problem = Problem(words.PVC_NOT_FOUND, message, retry=False)
            return None
        except DataVolumeNotFoundError as cause:
            message = f"Volume {volume.get('name')!r}: {cause}."
            run.draft.event(EventType.WARNING, words.PVC_NOT_FOUND, message)
            run.problem = Problem(words.DATA_VOLUME_IMPORT_FAILED, message)
            return None
        waits = waits or state.waits_for_consumer
        ready = ready and (state.ready or state.waits_for_consumer)
    return Readiness(ready, waits)


def data_volumes(run: VmiPass) -> list[Json]:
    """The DataVolumes behind the instance's volumes, named directly or through a claim."""
    found: list[Json] = []
    for volume in spec_volumes(run.world.vmi):
        wanted = ""
        if "persistentVolumeClaim" in volume:
            owner = controller_of(run.world.claims.get(claim_name(volume), {}))
            if owner is not None and owner.get("kind") == "DataVolume":
                wanted = str(owner.get("name", ""))
        else:
            wanted = text_at(volume, "dataVolume", "name")
        if wanted in run.world.data_volumes:
            found.append(run.world.data_volumes[wanted])
    return found


def sync_condition(run: VmiPass, volumes: list[Json]) -> None:
    """Sum up the DataVolumes' own Ready conditions."""
    if not volumes:
        return
    states = [_ready_state(volume) for volume in volumes]
    if all(state == "True" for state in states):
        status, reason, message = "True", "AllDVsReady", "All DataVolumes of the instance are ready."
    else:
        waiting = [name(one) for one, state in zip(volumes, states, strict=True) if state != "True"]
        status = "False" if "False" in states else next(state for state in states if state != "True")
        reason, message = "NotAllDVsReady", f"Not ready yet: DataVolumes {', '.join(waiting)}."
    update(run.conditions, make(words.DATA_VOLUMES_READY, status, reason, message, run.world.now))


def _ready_state(volume: Json) -> str:
    found = next((one for one in conditions(volume) if one.get("type") == "Ready"), None)
    return str(found.get("status")) if found is not None else "Unknown"


def any_in_phase(volumes: list[Json], state: str) -> bool:
    """Whether one of the DataVolumes is in a phase."""
    return any(text_at(volume, "status", "phase") == state for volume in volumes)


def claim_info(run: VmiPass, claim: Json) -> Json:
    """What the volume status tells of a claim; raises UnfinishedPassError where it cannot be known yet."""
    info: Json = {
        "claimName": name(claim),
        "accessModes": list_at(claim, "spec", "accessModes"),
        "volumeMode": text_at(claim, "spec", "volumeMode") or "Filesystem",
        "capacity": object_at(claim, "status", "capacity"),
        "requests": object_at(claim, "spec", "resources", "requests"),
        "filesystemOverhead": _filesystem_overhead(run, claim),
    }
    annotations = object_at(claim, "metadata", "annotations")
    if annotations.get("cdi.kubevirt.io/storage.preallocation") == "true":
        info["preallocated"] = True
    return info


def _filesystem_overhead(run: VmiPass, claim: Json) -> str:
    if len(run.world.importers) != 1:
        return "0.055"
    config = run.world.importer_config
    if config is None:
        raise UnfinishedPassError(
            "the importer of disk images is installed, but its CDIConfig is not there yet; tried again"
        )
    if text_at(claim, "spec", "volumeMode") == "Block":
        return "0"
    overhead = object_at(config, "status", "filesystemOverhead")
    storage_class = text_at(claim, "spec", "storageClassName")
    per_class = object_at(overhead, "storageClass")
    return str(per_class.get(storage_class) or overhead.get("global") or "0.055")

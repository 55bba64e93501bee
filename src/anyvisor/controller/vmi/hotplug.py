"""Volumes that come and go while the guest runs: the pods that hold their claims on the launcher's node.

One attachment pod carries all ready volumes; when the set changes, a new pod replaces it. An old pod is kept
while the guest still uses one of its volumes.
"""

from collections.abc import Sequence

from anyvisor.api.meta import Json, is_deleting, list_at, name, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.outcome import Create, Delete, Problem, normal
from anyvisor.controller.podspec.attachment import attachment_pod, population_pod
from anyvisor.controller.vm.data_volumes import claim_name
from anyvisor.controller.vmi import pods
from anyvisor.controller.vmi.claims import ClaimNotFoundError, DataVolumeNotFoundError, readiness
from anyvisor.controller.vmi.world import VmiPass, spec_volumes
from anyvisor.kube.resources import PODS

IN_GUEST = frozenset({"Ready", "MountedToPod"})
"""Phases of a volume in which the guest or its launcher may use it."""


def wanted(vmi: Json, launcher: Json) -> list[Json]:
    """The volumes that the launcher was started without, with utility volumes as ordinary ones."""
    found = [
        volume
        for volume in spec_volumes(vmi)
        if any(kind in volume for kind in ("persistentVolumeClaim", "dataVolume", "memoryDump"))
        and not pods.has_volume(launcher, str(volume.get("name", "")))
    ]
    for utility in list_at(vmi, "spec", "utilityVolumes"):
        if not pods.has_volume(launcher, str(utility.get("name", ""))):
            source = {key: value for key, value in utility.items() if key not in {"name", "type"}}
            claim = {**source, "hotpluggable": True}
            found.append({"name": utility.get("name"), "persistentVolumeClaim": claim})
    return found


def carries(pod: Json, volumes: Sequence[Json]) -> bool:
    """Whether an attachment pod holds the claims of exactly these volumes."""
    claims = {one.get("name") for one in list_at(pod, "spec", "volumes") if "persistentVolumeClaim" in one}
    return claims == {volume.get("name") for volume in volumes}


def split(volumes: Sequence[Json], attachments: Sequence[Json]) -> tuple[Json | None, list[Json]]:
    """The pod that holds the wanted volumes, and the older ones, the youngest first."""
    now: Json | None = None
    old: list[Json] = []
    for pod in attachments:
        if not carries(pod, volumes):
            old.append(pod)
        elif not is_deleting(pod):
            now = pod
    return now, pods.newest_first(old)


def sync(run: VmiPass, launcher: Json) -> None:
    """Make, replace and delete attachment pods."""
    volumes = wanted(run.world.vmi, launcher)
    attachments = pods.attachments(run, launcher)
    if is_deleting(launcher) or not _needs_work(volumes, attachments):
        return
    ready = _ready(run, launcher, volumes)
    if ready is None:
        return
    now, old = split(ready, attachments)
    if now is None and ready and not any(pods.phase(pod) not in _STARTED for pod in old):
        now = attachment_pod(run.world.vmi, launcher, ready, run.world.claims)
        done = normal(words.SUCCESSFUL_CREATE, f"Created attachment pod {name(now)}.")
        run.draft.writes.append(Create(PODS, now, done, words.FAILED_CREATE))
    _clean_up(run, now, old, bool(ready))


_STARTED = frozenset({"Running", "Succeeded", "Failed"})


def _needs_work(volumes: Sequence[Json], attachments: Sequence[Json]) -> bool:
    if len(attachments) == 1 and carries(attachments[0], volumes):
        return False
    return bool(volumes or attachments)


def _ready(run: VmiPass, launcher: Json, volumes: Sequence[Json]) -> list[Json] | None:
    """The volumes whose claims can be attached; None where the pass has to be tried again."""
    utility = {entry.get("name") for entry in list_at(run.world.vmi, "spec", "utilityVolumes")}
    ready: list[Json] = []
    for volume in volumes:
        try:
            state = readiness(run, volume)
        except (ClaimNotFoundError, DataVolumeNotFoundError) as cause:
            run.problem = Problem(words.PVC_NOT_READY, f"Volume {volume.get('name')!r}: {cause}.")
            return None
        block = text_at(run.world.claims[claim_name(volume)], "spec", "volumeMode") == "Block"
        if volume.get("name") in utility and block:
            continue
        if state.waits_for_consumer:
            pod = population_pod(run.world.vmi, launcher, volume, run.world.claims[claim_name(volume)])
            done = normal(words.SUCCESSFUL_CREATE, f"Created a first consumer for volume {volume.get('name')}.")
            run.draft.writes.append(Create(PODS, pod, done, words.FAILED_CREATE))
        elif state.ready:
            ready.append(volume)
    return ready


def _clean_up(run: VmiPass, now: Json | None, old: Sequence[Json], any_ready: bool) -> None:
    status = {
        str(entry.get("name", "")): text_at(entry, "phase")
        for entry in list_at(run.world.vmi, "status", "volumeStatus")
        if entry.get("hotplugVolume") is not None
    }
    in_spec = {str(one.get("name", "")) for one in spec_volumes(run.world.vmi) if _is_hotplug(one)}
    leaving = {key: phase for key, phase in status.items() if key not in in_spec}
    fallback_kept = now is not None and pods.phase(now) == "Running"
    for pod in old:
        held = [str(one.get("name", "")) for one in list_at(pod, "spec", "volumes")]
        in_use = any(leaving.get(volume) in IN_GUEST for volume in held)
        needed = in_use or any(volume in in_spec for volume in held)
        runs = pods.phase(pod) == "Running" and not is_deleting(pod)
        if not fallback_kept and runs and any_ready and needed:
            fallback_kept = True
        elif not in_use:
            delete(run, pod)


def _is_hotplug(volume: Json) -> bool:
    kinds = ("persistentVolumeClaim", "dataVolume", "memoryDump")
    return any(object_at(volume, kind).get("hotpluggable") is True for kind in kinds)


def delete(run: VmiPass, pod: Json) -> None:
    """Delete an attachment pod at once; it runs nothing that could need time."""
    if is_deleting(pod):
        return
    done = normal(words.SUCCESSFUL_DELETE, f"Deleted attachment pod {name(pod)}.")
    run.draft.writes.append(Delete(PODS, pod, done, words.FAILED_DELETE, grace=0))

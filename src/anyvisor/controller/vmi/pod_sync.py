"""What of an instance is carried to its launcher pod while it lives."""

from collections.abc import Mapping

from anyvisor.api.meta import Json, annotations, labels, list_at, object_at
from anyvisor.controller import words
from anyvisor.controller.conditions import has, make, update
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.outcome import Change
from anyvisor.controller.podspec.identity import BACKUP_HOOKS, backup_hooks
from anyvisor.controller.vmi import interfaces, pods
from anyvisor.controller.vmi.world import VmiPass
from anyvisor.kube.resources import PODS

FOLLOWED_LABELS = (words.NODE_NAME_LABEL, words.OUTDATED_LAUNCHER_LABEL)
FOLLOWED_ANNOTATIONS = (words.EVICT, words.PREFER_NO_EVICTION)


def sync_ready_pod(run: VmiPass, pod: Json) -> Json:
    """Annotations that others act upon while the guest's container runs."""
    wanted = dict(annotations(pod))
    wanted.setdefault(words.EVICT_ONLY, "")
    network = interfaces.pod_annotation(run, pod)
    if network is not None:
        wanted[words.NETWORKS] = network
    if run.marked_for_eviction:
        wanted.setdefault(words.EVICTION_IN_PROGRESS, "true")
    else:
        wanted.pop(words.EVICTION_IN_PROGRESS, None)
    return _write(run, pod, {"annotations": wanted})


def sync_metadata(run: VmiPass, pod: Json) -> Json:
    """Labels and annotations of the instance that its pod has to have too."""
    marks = _followed(labels(run.vmi), labels(pod), FOLLOWED_LABELS)
    followed = _followed(annotations(run.vmi), annotations(pod), FOLLOWED_ANNOTATIONS)
    kept = {key: value for key, value in followed.items() if not key.startswith(BACKUP_HOOKS)}
    return _write(run, pod, {"labels": marks, "annotations": kept | backup_hooks(run.vmi)})


def _followed(source: Mapping[str, str], present: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    result = {key: value for key, value in present.items() if key not in keys or key in source}
    return result | {key: source[key] for key in keys if key in source}


def _write(run: VmiPass, before: Json, metadata: Json) -> Json:
    """Change these parts of a pod's metadata; the rest is shared, as a pod is large and seldom changes."""
    after = {**before, "metadata": {**before["metadata"], **metadata}}
    if after["metadata"] == before["metadata"]:
        return before
    run.draft.writes.append(Change(PODS, before, after))
    return after


def sync_unpaused(run: VmiPass, pod: Json) -> Json:
    """The readiness gate: a paused guest takes no traffic."""
    present = list_at(pod, "status", "conditions")
    paused = has(run.conditions, words.PAUSED, "True")
    open_now = has(present, words.UNPAUSED, "True")
    if paused != open_now:
        return pod
    conditions = duplicate(present)
    if paused:
        new = make(words.UNPAUSED, "False", "Paused", "The guest is paused.", run.world.now)
    else:
        new = make(words.UNPAUSED, "True", "NotPaused", "The guest is not paused.", run.world.now)
    update(conditions, new)
    after = {**pod, "status": {**object_at(pod, "status"), "conditions": conditions}}
    run.draft.writes.append(Change(PODS, pod, after, status=True))
    return after


def sync_image(run: VmiPass, pod: Json) -> None:
    """Note which launcher image runs, and whether a new pod would get another one."""
    image = pods.compute_image(pod)
    marks = run.vmi["metadata"].setdefault("labels", {})
    if image and run.world.launcher_image and image != run.world.launcher_image:
        marks[words.OUTDATED_LAUNCHER_LABEL] = ""
    else:
        marks.pop(words.OUTDATED_LAUNCHER_LABEL, None)
    run.status["launcherContainerImageVersion"] = image

"""Which pods belong to an instance, and what their state means for it."""

from collections.abc import Iterable, Sequence

from anyvisor.api.meta import Json, annotations, controller_of, is_deleting, list_at, object_at, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.vmi.world import VmiPass

COMPUTE = "compute"
SIDE_CARS_STARTED = frozenset({"istio-proxy"})
"""Side containers that need only run: they get ready when a Service points to the pod, which is later."""


def controlled_by(pod: Json, owner: Json) -> bool:
    """Whether `owner` is the pod's controller."""
    reference = controller_of(pod)
    return reference is not None and reference.get("uid") == uid(owner)


def owned(run: VmiPass) -> list[Json]:
    """The pods that the instance itself controls: its launchers, old and new."""
    return [pod for pod in run.world.pods if controlled_by(pod, run.world.vmi)]


def attachments(run: VmiPass, launcher: Json) -> list[Json]:
    """The pods that hold hot-plugged volumes on the launcher's node."""
    return [pod for pod in run.world.pods if controlled_by(pod, launcher)]


def current(run: VmiPass) -> Json | None:
    """The newest launcher on the instance's node, or the newest of all while it has no node."""
    node = text_at(run.world.vmi, "status", "nodeName")
    found: Json | None = None
    for pod in owned(run):
        if node and node != text_at(pod, "spec", "nodeName"):
            continue
        if found is None or _created(found) < _created(pod):
            found = pod
    return found


def _created(pod: Json) -> str:
    return text_at(pod, "metadata", "creationTimestamp")


def is_temporary(pod: Json) -> bool:
    """Whether the pod only makes a volume's first consumer known, and starts no guest."""
    return words.EPHEMERAL_PROVISIONING in annotations(pod)


def phase(pod: Json) -> str:
    """The pod's phase."""
    return text_at(pod, "status", "phase")


def is_down(pod: Json) -> bool:
    """Whether all containers of the pod have ended for good."""
    return phase(pod) in {"Succeeded", "Failed"}


def compute_status(pod: Json) -> Json | None:
    """The status of the container that the guest runs in."""
    statuses = list_at(pod, "status", "containerStatuses")
    return next((one for one in statuses if one.get("name") == COMPUTE), None)


def _terminated(pod: Json) -> Json | None:
    compute = compute_status(pod)
    ended = object_at(compute or {}, "state").get("terminated")
    return object_at({"ended": ended}, "ended") if ended is not None else None


def is_down_or_going(pod: Json) -> bool:
    """Whether the guest's container has ended or is asked to end."""
    return is_down(pod) or _terminated(pod) is not None or is_deleting(pod)


def failed_or_going(pod: Json) -> bool:
    """Whether the pod failed or is asked to end."""
    ended = _terminated(pod)
    return phase(pod) == "Failed" or (ended is not None and bool(ended.get("exitCode"))) or is_deleting(pod)


def is_ready(pod: Json) -> bool:
    """Whether the guest may be handed to the node: compute started and every other container ready.

    The compute container's own readiness is the guest's and comes later.
    """
    if is_down_or_going(pod) or phase(pod) != "Running":
        return False
    for status in list_at(pod, "status", "containerStatuses"):
        if status.get("name") in {COMPUTE, *SIDE_CARS_STARTED}:
            if not _running(status):
                return False
        elif status.get("ready") is not True:
            return False
    return True


def _running(status: Json) -> bool:
    return object_at(status, "state").get("running") is not None


def compute_image(pod: Json) -> str:
    """The image of the guest's container."""
    containers = list_at(pod, "spec", "containers")
    return next((str(one.get("image", "")) for one in containers if one.get("name") == COMPUTE), "")


def image_error(pod: Json) -> tuple[str, str] | None:
    """(reason, message) of a container whose image cannot be had."""
    statuses = [*list_at(pod, "status", "initContainerStatuses"), *list_at(pod, "status", "containerStatuses")]
    for status in statuses:
        waiting = object_at(status, "state", "waiting")
        if waiting.get("reason") in {words.ERR_IMAGE_PULL, words.IMAGE_PULL_BACK_OFF}:
            return str(waiting["reason"]), str(waiting.get("message", ""))
    return None


def waits_for(pod: Json) -> tuple[str, str] | None:
    """(reason, message) of the guest's container that cannot be made yet, as something that it mounts is missing."""
    waiting = object_at(compute_status(pod) or {}, "state", "waiting")
    reason, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))
    return (reason, message) if reason in words.CONTAINER_NOT_MADE and message else None


def has_volume(pod: Json, name: str) -> bool:
    """Whether the pod has a volume of that name."""
    return any(volume.get("name") == name for volume in list_at(pod, "spec", "volumes"))


def holding(pods: Iterable[Json], volume: str) -> Json | None:
    """The first of the pods that has a volume of that name."""
    return next((pod for pod in pods if has_volume(pod, volume)), None)


def newest_first(pods: Sequence[Json]) -> list[Json]:
    """The pods, the youngest first."""
    return sorted(pods, key=_created, reverse=True)

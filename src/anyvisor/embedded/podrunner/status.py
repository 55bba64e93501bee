"""A pod's status as a kubelet would report it: pure, told the time.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from anyvisor.agent.status import replaced_condition
from anyvisor.api.meta import Json, annotations, conditions, list_at, object_at
from anyvisor.api.wire import Time
from anyvisor.embedded.podnetwork.attachments import STATUS, WANTED, network_status
from anyvisor.embedded.podrunner.records import ExitRecord, PodRecord

UNPAUSED = "kubevirt.io/virtual-machine-unpaused"
"""The readiness gate of launcher pods. The controller keeps it; that a guest which is yet to start is not paused is
said here with the pod's first report, which spares two more writes of each pod."""
_NOT_PAUSED: Json = {"type": UNPAUSED, "status": "True", "reason": "NotPaused", "message": "The guest is not paused."}
UNKNOWN_CODE = 137
"""What a kubelet reports for a container whose end nobody saw."""


def exit_code(ended: ExitRecord) -> int:
    """The exit code that a container runtime would report."""
    if ended.signal is not None:
        return 128 + ended.signal
    return ended.code if ended.code is not None else UNKNOWN_CODE


def patch(
    pod: Json, record: PodRecord, host_ip: str, now: Time, *, answering: bool = True, networked: bool = False
) -> Json | None:
    """The merge patch for the pod's status; None when it says all that already.

    `answering`: whether its readiness probes hold. `networked`: whether it is on this machine's own pod network, which
    it is told with the first report, as a network plug-in does.
    """
    status = object_at(pod, "status")
    wanted: Json = {
        "phase": _phase(record),
        "conditions": _conditions(pod, record, now, answering=answering),
        "containerStatuses": [_container(c, record, answering=answering) for c in list_at(pod, "spec", "containers")],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "qosClass": status.get("qosClass") or "Burstable",
    }
    sidecars = [_container(c, record, answering=True) for c in list_at(pod, "spec", "initContainers")]
    if sidecars:
        wanted["initContainerStatuses"] = sidecars
    if record.started_at:
        wanted["startTime"] = record.started_at
    if record.pod_ip:
        wanted["podIP"] = record.pod_ip
        wanted["podIPs"] = [{"ip": record.pod_ip}]
    changed = {key: value for key, value in wanted.items() if status.get(key) != value}
    if not changed:
        return None
    result: Json = {"status": changed}
    if networked and record.pod_ip and STATUS not in annotations(pod) and WANTED not in annotations(pod):
        result["metadata"] = {"annotations": {STATUS: network_status(record.pod_ip)}}
    return result


START = "CreateContainerError"
CONFIGURATION = "CreateContainerConfigError"
"""A kubelet's words for a container that cannot be made, and for one that lacks a Secret or ConfigMap."""


def waiting(pod: Json, message: str, reason: str = START) -> Json:
    """The patch that tells why a pod does not run yet, where a kubelet would: in its containers' waiting state."""
    state = {"waiting": {"reason": reason, "message": message}}
    containers: list[Json] = [
        {
            "name": str(container["name"]),
            "image": str(container.get("image") or ""),
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        for container in list_at(pod, "spec", "containers")
    ]
    return {"status": {"phase": "Pending", "containerStatuses": containers}}


def _phase(record: PodRecord) -> str:
    if record.exit is not None:
        return "Succeeded" if exit_code(record.exit) == 0 else "Failed"
    return "Running" if record.pid else "Pending"


def _container(container: Json, record: PodRecord, *, answering: bool) -> Json:
    running = record.pid > 0 and record.exit is None
    state: Json = {"waiting": {"reason": "ContainerCreating"}}
    if running:
        state = {"running": {"startedAt": record.started_at}}
    elif record.exit is not None:
        state = {"terminated": _terminated(record, record.exit)}
    image = str(container.get("image") or "")
    return {
        "name": str(container["name"]),
        "image": image,
        "imageID": image,
        "containerID": f"anyvisor://{record.uid}/{container['name']}" if record.pid else "",
        "ready": running and answering,
        "started": running,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _terminated(record: PodRecord, ended: ExitRecord) -> Json:
    code = exit_code(ended)
    reason = "Completed" if code == 0 else "Error"
    if ended.out_of_memory:
        reason = "OOMKilled"
    elif ended.code is None and ended.signal is None:
        reason = "ContainerStatusUnknown"
    terminated: Json = {
        "exitCode": code,
        "reason": reason,
        "startedAt": record.started_at,
        "finishedAt": ended.at,
        "containerID": f"anyvisor://{record.uid}",
    }
    if ended.signal is not None:
        terminated["signal"] = ended.signal
    return terminated


def _conditions(pod: Json, record: PodRecord, now: Time, *, answering: bool) -> list[Json]:
    running = record.pid > 0 and record.exit is None
    gates = [str(gate["conditionType"]) for gate in list_at(pod, "spec", "readinessGates")]
    result = conditions(pod)
    if running and UNPAUSED in gates and all(c.get("type") != UNPAUSED for c in result):
        result = replaced_condition(result, _NOT_PAUSED, now)
    held = {str(c.get("type")): c.get("status") == "True" for c in result}
    ready = running and answering and all(held.get(gate, False) for gate in gates)
    for type_, holds in (
        ("PodReadyToStartContainers", running),
        ("Initialized", True),
        ("ContainersReady", running and answering),
        ("Ready", ready),
    ):
        condition: Json = {"type": type_, "status": "True" if holds else "False"}
        reason = _unready(type_, record, gated=running and answering and not ready)
        if not holds and reason:
            condition["reason"] = reason
        result = replaced_condition(result, condition, now)
    return result


def _unready(type_: str, record: PodRecord, *, gated: bool) -> str:
    if type_ not in ("Ready", "ContainersReady"):
        return ""
    if record.exit is not None:
        return "PodCompleted" if exit_code(record.exit) == 0 else "PodFailed"
    return "ReadinessGatesNotReady" if gated else "ContainersNotReady"

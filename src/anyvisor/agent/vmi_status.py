"""Write a VMI's status: compare-and-swap on its resourceVersion, made anew when somebody else was faster."""

from datetime import UTC, datetime

from anyvisor.agent import status
from anyvisor.agent.status import Observation
from anyvisor.api.meta import Json, name, namespace, object_at, uid
from anyvisor.api.wire import Time
from anyvisor.kube.client import Client
from anyvisor.kube.errors import Conflict, NotFound
from anyvisor.kube.resources import VMIS

_ATTEMPTS = 4


def now() -> Time:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def write(client: Client, vmi: Json, seen: Observation) -> Json | None:
    """Bring the status up to what was seen; the VMI as it is then, None when it is gone.

    A final phase is never left again, whoever wrote it.
    """
    for attempt in range(_ATTEMPTS):
        if object_at(vmi, "status").get("phase") in status.FINAL and seen.phase not in status.FINAL:
            return vmi
        patch = status.patch(vmi, seen, now())
        if patch is None:
            return vmi
        try:
            return await client.patch(VMIS, name(vmi), namespace(vmi), patch)
        except NotFound:
            return None
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        fresh = await _get(client, vmi)
        if fresh is None:
            return None
        vmi = fresh
    return vmi


async def _get(client: Client, vmi: Json) -> Json | None:
    try:
        fresh = await client.get(VMIS, name(vmi), namespace(vmi))
    except NotFound:
        return None
    return fresh if uid(fresh) == uid(vmi) else None


async def claim(client: Client, vmi: Json, pod_uid: str, node: str) -> Json:
    """Write the pod into `status.activePods` before anything of it starts: the seal of at-most-once.

    Raises:
        Conflict: the VMI changed meanwhile; look again.
    """
    if pod_uid in object_at(vmi, "status", "activePods"):
        return vmi
    patch = {
        "metadata": {"resourceVersion": vmi["metadata"]["resourceVersion"]},
        "status": {"activePods": {pod_uid: node}},
    }
    return await client.patch(VMIS, name(vmi), namespace(vmi), patch)

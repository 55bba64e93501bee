"""`status.stateChangeRequests`: the queue of imperative start and stop requests.

Only the first request counts at a time; it is taken off when it was acted upon or has become pointless.
"""

from anyvisor.api.meta import Json, is_deleting, list_at, object_at, uid
from anyvisor.controller.vm.start_failure import is_final


def first(vm: Json) -> Json | None:
    """The request that waits first, if any."""
    requests = list_at(vm, "status", "stateChangeRequests")
    return requests[0] if requests else None


def wants_start(vm: Json) -> bool:
    """Whether a start was asked for."""
    request = first(vm)
    return request is not None and request.get("action") == "Start"


def wants_paused_start(vm: Json) -> bool:
    """Whether the asked start is to leave the guest paused."""
    request = first(vm)
    if request is None or request.get("action") != "Start":
        return False
    return object_at(request, "data").get("paused") == "true"


def wants_stop(vm: Json, vmi: Json) -> bool:
    """Whether this very instance was asked to stop."""
    request = first(vm)
    return request is not None and request.get("action") == "Stop" and request.get("uid") == uid(vmi)


def add_start(vm: Json) -> None:
    """Queue a start, unless two wait in a row: passes that see their own result late must not fill the list."""
    waiting = list_at(vm, "status", "stateChangeRequests")
    if [request.get("action") for request in waiting[-2:]] != ["Start", "Start"]:
        vm.setdefault("status", {})["stateChangeRequests"] = [*waiting, {"action": "Start"}]


def trim(vm: Json, vmi: Json | None) -> None:
    """Take the first request off when nothing is left to do for it."""
    request = first(vm)
    if request is None or not _done(request, vmi):
        return
    vm["status"]["stateChangeRequests"] = vm["status"]["stateChangeRequests"][1:]


def _done(request: Json, vmi: Json | None) -> bool:
    if request.get("action") == "Stop":
        return vmi is None or request.get("uid") != uid(vmi)
    return vmi is not None and not is_deleting(vmi) and not is_final(vmi)

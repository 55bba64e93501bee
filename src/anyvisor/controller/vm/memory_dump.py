"""`status.memoryDumpRequest`: no driver is asked for dumps yet, so each request ends at once, and says so."""

from typing import Final

from anyvisor.api.meta import object_at, text_at
from anyvisor.controller.conditions import timestamp
from anyvisor.controller.outcome import EventType
from anyvisor.controller.vm.world import VmPass

ENDED: Final = frozenset({"Completed", "Failed"})
MESSAGE: Final = "Memory dumps are not served yet; the guest was left alone."


def end_request(run: VmPass) -> None:
    """Fail a request that waits, and forget one that was taken back."""
    status = run.vm["status"]
    request = object_at(status, "memoryDumpRequest")
    if not request:
        return
    if request.get("remove") is True:
        del status["memoryDumpRequest"]
    elif text_at(request, "phase") not in ENDED:
        now = timestamp(run.world.now)
        status["memoryDumpRequest"] = {**request, "phase": "Failed", "message": MESSAGE, "endTimestamp": now}
        run.draft.event(EventType.WARNING, "MemoryDumpError", MESSAGE)

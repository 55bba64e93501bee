"""The status of a DataVolume, from its claim and the fill. Pure.

Phases, reasons and conditions are those that clients of the Containerized Data Importer look for.
"""

from typing import Final

from anyvisor.api.meta import Json, conditions, controller_of, name, object_at, text_at, uid, with_condition
from anyvisor.embedded.imports.fills import Fill
from anyvisor.embedded.imports.sources import FromClaim

PENDING: Final = "Pending"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
_UNKNOWN_PROGRESS: Final = "N/A"


def verb(fill: Fill | None) -> str:
    """`Clone` or `Import`, as the phases and events begin."""
    return "Clone" if fill is not None and isinstance(fill.job.source, FromClaim) else "Import"


def is_own(volume: Json, claim: Json) -> bool:
    """Whether the claim was made for the DataVolume."""
    owner = controller_of(claim)
    return owner is not None and owner.get("uid") == uid(volume)


def status_of(volume: Json, claim: Json | None, fill: Fill | None, problem: tuple[str, str], now: str) -> Json:
    """The whole status; `problem`: reason and message of why there is no claim, both empty for none."""
    phase = _phase(volume, claim, fill)
    bound = claim is not None and text_at(claim, "status", "phase") == "Bound"
    before = object_at(volume, "status")
    percent = f"{fill.percent}.0%" if fill is not None else _UNKNOWN_PROGRESS
    restarts = max(fill.failures if fill is not None else 0, int(before.get("restartCount") or 0))
    result: Json = {
        "phase": phase,
        "progress": "100.0%" if phase == SUCCEEDED else percent,
        "restartCount": restarts,
        "conditions": _conditions(volume, claim, fill, problem, now, bound=bound, phase=phase),
    }
    if claim is not None:
        result["claimName"] = name(claim)
    return result


def _phase(volume: Json, claim: Json | None, fill: Fill | None) -> str:
    if claim is None or not is_own(volume, claim):
        return PENDING
    if text_at(claim, "status", "phase") == "Bound":
        return SUCCEEDED
    if fill is None:
        return PENDING
    if fill.state == "failed":
        return FAILED
    return f"{verb(fill)}Scheduled" if fill.state == "waiting" and not fill.failures else f"{verb(fill)}InProgress"


def _conditions(
    volume: Json,
    claim: Json | None,
    fill: Fill | None,
    problem: tuple[str, str],
    now: str,
    *,
    bound: bool,
    phase: str,
) -> list[Json]:
    found = conditions(volume)
    reason, message = problem
    if claim is None or not is_own(volume, claim):
        found = _with(found, "Bound", "False" if reason else "Unknown", reason or "NotFound", message, now)
    elif bound:
        found = _with(found, "Bound", "True", "Bound", f"PVC {name(claim)} Bound", now)
    else:
        found = _with(found, "Bound", "False", "Pending", message or f"PVC {name(claim)} Pending", now)
    done = phase == SUCCEEDED
    found = _with(found, "Ready", "True" if done else "False", "TransferCompleted" if done else "", "", now)
    if done:
        return _with(found, "Running", "False", "Completed", "Import Complete", now)
    if fill is not None and fill.message:
        return _with(found, "Running", "False", fill.reason, fill.message, now)
    running = fill is not None and fill.state == "running"
    return _with(found, "Running", "True" if running else "False", "", "", now)


def _with(present: list[Json], kind: str, status: str, reason: str, message: str, now: str) -> list[Json]:
    return with_condition(present, {"type": kind, "status": status, "reason": reason, "message": message}, now)

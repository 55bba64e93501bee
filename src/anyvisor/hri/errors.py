"""The errors of the HRI as types: raised by drivers (the kit sends them), raised to callers (the client reads them).

Each class is one gRPC status. `retry` tells the caller what a repetition is worth, with the words of the planner's
findings: `never` (a repetition gives the same answer), `after_change` (of the machine, the driver or the node),
`backoff` (temporary) and `now`.
"""

# ruff: noqa: N818 - the names are those of the gRPC statuses, or what happened

from collections.abc import Sequence
from typing import ClassVar

from anyvisor.hri.v1.types_pb2 import Finding


class HriError(Exception):
    """A refusal or failure that crosses the HRI. `message` is one sentence for a person: what, why, what next."""

    status: ClassVar[str] = "UNKNOWN"
    retry: str = "backoff"

    def __init__(
        self,
        message: str,
        *,
        findings: Sequence[Finding] = (),
        operation_id: str = "",
        retry: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.findings = tuple(findings)
        self.operation_id = operation_id
        if retry is not None:
            self.retry = retry

    @property
    def code(self) -> str:
        """The code of the first finding, else the status: what a program may branch on."""
        return self.findings[0].code if self.findings else self.status


class InvalidRequest(HriError):
    """The request breaks the contract of the interface, whatever the state of the machine."""

    status = "INVALID_ARGUMENT"
    retry = "never"


class Refused(HriError):
    """Well formed, but this driver, node or state cannot do it; the findings say which part."""

    status = "FAILED_PRECONDITION"
    retry = "after_change"


class MachineNotFound(HriError):
    """The driver does not know the machine (or the stream or operation): after its restart, adopt first."""

    status = "NOT_FOUND"
    retry = "after_change"


class OperationConflict(HriError):
    """The operation id was used with other content, or the machine exists already."""

    status = "ALREADY_EXISTS"
    retry = "never"


class DriverUnavailable(HriError):
    """No answer from the driver, or it asks for patience."""

    status = "UNAVAILABLE"
    retry = "backoff"


class LimitReached(HriError):
    """A cap on size, count or rate."""

    status = "RESOURCE_EXHAUSTED"
    retry = "backoff"


class NotImplementedByDriver(HriError):
    """The driver does not serve this method or change."""

    status = "UNIMPLEMENTED"
    retry = "never"


class DeadlineExceeded(HriError):
    """The call's deadline passed; the operation may still run, and its id asks for the outcome."""

    status = "DEADLINE_EXCEEDED"
    retry = "now"


class OperationCancelled(HriError):
    """Ended by CancelOperation, or superseded by a forced stop or a destroy."""

    status = "CANCELLED"
    retry = "never"


class PeerDenied(HriError):
    """The peer's credentials are not those of the agent."""

    status = "PERMISSION_DENIED"
    retry = "never"


class VmmFailed(HriError):
    """The VMM broke its own contract, died, or answered with an error that has no better type."""

    status = "INTERNAL"
    retry = "backoff"


class DriverFault(HriError):
    """The driver (not the VMM) failed in a way that it did not foresee."""

    status = "UNKNOWN"
    retry = "backoff"


_CLASSES: dict[str, type[HriError]] = {
    kind.status: kind
    for kind in (
        InvalidRequest,
        Refused,
        MachineNotFound,
        OperationConflict,
        DriverUnavailable,
        LimitReached,
        NotImplementedByDriver,
        DeadlineExceeded,
        OperationCancelled,
        PeerDenied,
        VmmFailed,
        DriverFault,
    )
}


def from_status(status: str, message: str, findings: Sequence[Finding] = (), operation_id: str = "") -> HriError:
    """The error of a gRPC status name. The retry class of the first finding, if it states one, wins."""
    kind = _CLASSES.get(status, DriverFault)
    stated = findings[0].retry if findings and findings[0].retry else None
    return kind(message, findings=findings, operation_id=operation_id, retry=stated)


def finding(
    code: str,
    message: str,
    *,
    field: str = "",
    capability: str = "",
    have: str = "",
    want: str = "",
    severity: str = "error",
    retry: str = "after_change",
) -> Finding:
    """A finding of a driver. `field` is a path in the Machine message, e.g. `disks[1].bus`."""
    return Finding(
        code=code,
        severity=severity,
        field=field,
        capability=capability,
        have=have,
        want=want,
        message=message,
        retry=retry,
    )

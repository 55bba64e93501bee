"""The driver kit: what an author of a driver in Python uses.

    class MyDriver(Driver):
        ...

    await serve(MyDriver(), hri_socket="/run/x/hri.sock", fd_socket="/run/x/fd.sock")

The kit serves the HRI over a unix socket and does for every driver: replay by operation id, generation checks,
operations with progress and cancellation, the event log with resync, the books, errors with findings, fd.sock with
peer credentials, caps on sizes and counts.

Modules of their own, for what drivers need again: `sessions`, `facts`, `kvm`, `kvm_guest`, `drafts`, `understood`,
`views`, `streams`, `process` (docs/drivers).
"""

from anyvisor.hri.errors import (
    DeadlineExceeded,
    DriverFault,
    DriverUnavailable,
    HriError,
    InvalidRequest,
    LimitReached,
    MachineNotFound,
    NotImplementedByDriver,
    OperationCancelled,
    OperationConflict,
    Refused,
    VmmFailed,
    finding,
)
from anyvisor.hri.kit.descriptors import Descriptors
from anyvisor.hri.kit.driver import Call, Driver, DriverInfo
from anyvisor.hri.kit.machines import MachineContext
from anyvisor.hri.kit.server import DriverServer, KitLimits, serve
from anyvisor.hri.kit.views import FINAL_PHASES, Intent, View

__all__ = [
    "FINAL_PHASES",
    "Call",
    "DeadlineExceeded",
    "Descriptors",
    "Driver",
    "DriverFault",
    "DriverInfo",
    "DriverServer",
    "DriverUnavailable",
    "HriError",
    "Intent",
    "InvalidRequest",
    "KitLimits",
    "LimitReached",
    "MachineContext",
    "MachineNotFound",
    "NotImplementedByDriver",
    "OperationCancelled",
    "OperationConflict",
    "Refused",
    "View",
    "VmmFailed",
    "finding",
    "serve",
]

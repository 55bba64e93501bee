"""From a driver's launch plan to what the shim takes: descriptors by number, limits, the stop script."""

import contextlib
import os
import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.agent import access, endpoints, seed
from anyvisor.agent.descriptors import Descriptors
from anyvisor.agent.endpoints import EndpointError
from anyvisor.agent.launchers import Launcher, LauncherError
from anyvisor.agent.records import EndpointRecord, HelperRecord, write_file
from anyvisor.hri.v1.machine_pb2 import Helper, LaunchPlan, Limit, PrepareResponse
from anyvisor.hri.v1.types_pb2 import Endpoint, StopScript
from anyvisor.launcher import shim

_LIMITS: Final[Mapping[str, int]] = {
    "as": resource.RLIMIT_AS,
    "core": resource.RLIMIT_CORE,
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "stack": resource.RLIMIT_STACK,
}
_LIMIT_LINES: Final[Mapping[str, str]] = {
    "as": "Max address space",
    "core": "Max core file size",
    "memlock": "Max locked memory",
    "nofile": "Max open files",
    "nproc": "Max processes",
    "stack": "Max stack size",
}
"""Their lines in /proc/<pid>/limits."""


_ENDPOINT: Final = "endpoint/"


@dataclass(frozen=True, slots=True)
class Launch:
    """All that is needed for one hand-over."""

    plan: shim.Plan
    descriptors: list[int]
    """In the order of the plan's numbers; owned by the bag they came from."""
    endpoints: tuple[EndpointRecord, ...]
    helpers: tuple[HelperRecord, ...] = ()


def has_process(mode: LaunchPlan.Mode) -> bool:
    """Whether the launcher becomes the VMM (or the driver's own server); else it only waits beside the machine."""
    return mode in (LaunchPlan.MODE_EXEC, LaunchPlan.MODE_RESIDENT)


def is_external(mode: LaunchPlan.Mode) -> bool:
    """Whether a daemon outside runs the guest."""
    return mode == LaunchPlan.MODE_EXTERNAL


def assemble(prepared: PrepareResponse, held: Descriptors, launcher: Launcher) -> Launch:
    """Bind the endpoints and look up every descriptor that the driver numbered.

    Raises:
        LauncherError: the driver's answer cannot be executed.
    """
    plan = prepared.launch
    seed.sow(plan.seeds, held)
    try:
        connect_pairs(plan, held, launcher.directory)
        records = endpoints.describe(prepared.endpoints)
        if is_external(plan.mode):  # the driver gets descriptors and listening sockets itself, with Start
            return Launch(shim.Plan([], [], []), [], records)
        for endpoint, record in zip(prepared.endpoints, records, strict=True):
            if endpoint.WhichOneof("location") == "listen_descriptor":
                held.put(_ENDPOINT + record.id, endpoints.bind(launcher, record))
    except EndpointError as error:
        raise LauncherError(str(error)) from error
    numbers, descriptors = _slots(_numbered(prepared), held)
    helpers: list[shim.Plan] = []
    for helper in plan.helpers:
        _check_helper(helper)
        own, more = _slots({slot.number: slot.handle for slot in helper.descriptors}, held)
        helpers.append(shim.Plan(list(helper.argv), list(helper.env), own))
        descriptors += more
    _grant(plan, held, launcher)
    made = shim.Plan(list(plan.argv), list(plan.env), numbers, plan.working_directory, helpers)
    if has_process(plan.mode):
        try:
            shim.encode_plan(made)
        except shim.PlanError as error:
            raise LauncherError(f"the driver's launch plan cannot be used: {error}") from error
    processes = tuple(
        HelperRecord(helper.name, helper.becomes or helper.argv[0], helper.on_exit) for helper in plan.helpers
    )
    return Launch(made, descriptors, records, processes)


def close_given(plan: LaunchPlan, held: Descriptors) -> None:
    """Close our copies of sockets once VMM and helpers have them: with one open, their end would not show."""
    ours = {end for pair in plan.pairs for end in (pair.first, pair.second)}
    for handle in held.handles():
        if handle.startswith(_ENDPOINT) or handle in ours:
            os.close(held.take(handle))


def connect_pairs(plan: LaunchPlan, held: Descriptors, directory: int) -> None:
    """Make the sockets by which the VMM and its helpers speak; raises EndpointError.

    `directory` is the launcher's own, where a listening one is bound for a moment.
    """
    for pair in plan.pairs:
        first, second = endpoints.waiting_pair(directory) if pair.listening else socket.socketpair()
        held.put_all({pair.first: first.detach(), pair.second: second.detach()})


def _check_helper(helper: Helper) -> None:
    if helper.on_exit not in (Helper.ON_EXIT_FATAL, Helper.ON_EXIT_IGNORE):
        raise LauncherError(f"the driver wants helper {helper.name[:80]!r} restarted when it ends, which is not served")
    numbers = [slot.number for slot in helper.descriptors]
    if len(set(numbers)) != len(numbers):
        raise LauncherError(f"the driver's helper {helper.name[:80]!r} uses a descriptor number twice")


def _numbered(prepared: PrepareResponse) -> dict[int, str]:
    """The handles that the VMM wants; an endpoint's own number counts where the plan does not list it."""
    wanted = {slot.number: slot.handle for slot in prepared.launch.descriptors}
    if len(wanted) != len(prepared.launch.descriptors):
        raise LauncherError("the driver's launch plan uses a descriptor number twice")
    listed = set(wanted.values())
    for endpoint in prepared.endpoints:
        if endpoint.WhichOneof("location") == "listen_descriptor" and endpoint.id not in listed:
            wanted[endpoint.listen_descriptor] = endpoint.id
    return wanted


def _slots(wanted: Mapping[int, str], held: Descriptors) -> tuple[list[int], list[int]]:
    """Numbers and descriptors."""
    numbers: list[int] = []
    descriptors: list[int] = []
    for number, handle in sorted(wanted.items()):
        own = held.get(handle)
        descriptor = own if own is not None else held.get(_ENDPOINT + handle)
        if descriptor is None:
            raise LauncherError(f"the driver wants descriptor {handle[:80]!r}, which this machine does not have")
        numbers.append(number)
        descriptors.append(descriptor)
    return numbers, descriptors


def _grant(plan: LaunchPlan, held: Descriptors, launcher: Launcher) -> None:
    """Give the launcher's user the right to files that its VMM opens anew."""
    for slot in (*plan.descriptors, *(slot for helper in plan.helpers for slot in helper.descriptors)):
        descriptor = held.get(slot.handle)
        if not slot.reopened or descriptor is None:
            continue
        try:
            access.grant(descriptor, launcher.uid)
        except OSError as error:
            raise LauncherError(
                f"the launcher's user {launcher.uid} cannot be allowed to open {slot.handle[:80]!r}: "
                f"{error.strerror}; put the volume on a file system with access control lists"
            ) from error


def set_limits(plan: LaunchPlan, pid: int, memory_lock: int) -> None:
    """Set the launcher's resource limits from outside; it may have no right to.

    `memory_lock` bytes are what the plan counts on, 0 for nothing; a limit that the driver states wins.

    Raises:
        LauncherError: an unknown limit, or one that this agent may not raise either.
    """
    # Guest memory must not land in a core file; the launcher sees to it itself where we may not (no CAP_SYS_RESOURCE).
    with contextlib.suppress(PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    limits = [*plan.limits]
    if memory_lock:
        limits.insert(0, Limit(name="memlock", soft=memory_lock, hard=memory_lock))
    for limit in limits:
        if limit.name not in _LIMITS:
            raise LauncherError(f"the driver's launch plan has the unknown limit {limit.name!r}")
        pair = (_limit(limit.soft), _limit(limit.hard))
        try:
            resource.prlimit(pid, _LIMITS[limit.name], pair)
        except (PermissionError, ValueError) as error:
            if _soft_limit(pid, limit.name) >= limit.soft:
                continue
            raise LauncherError(
                f"the limit {limit.name} of the launcher cannot be set to {limit.hard}: run the agent as root, "
                "or raise its own limit"
            ) from error


def _soft_limit(pid: int, name: str) -> int:
    """What a process of another user has: only /proc tells those without CAP_SYS_RESOURCE."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith(_LIMIT_LINES[name]):
            soft = line.removeprefix(_LIMIT_LINES[name]).split()[0]
            return 1 << 63 if soft == "unlimited" else int(soft)
    return 0


def _limit(value: int) -> int:
    return resource.RLIM_INFINITY if value >= 1 << 63 else value


def leave_stop_script(prepared: PrepareResponse, launch: Launch, launcher: Launcher, grace: float) -> None:
    """Leave the launcher what its stop hook needs without us; nothing when the driver offers no script."""
    for endpoint, record in zip(prepared.endpoints, launch.endpoints, strict=True):
        if endpoint.purpose == Endpoint.PURPOSE_STOP and endpoint.HasField("stop_script"):
            script = stop_plan(endpoint.stop_script, record.name, grace)
            try:
                write_file(launcher.directory, shim.STOP_NAME, shim.encode_stop(script), 0o644)
                os.chmod(shim.STOP_NAME, 0o644, dir_fd=launcher.directory)
            except OSError as error:
                raise LauncherError(f"the stop script cannot be left to the launcher: {error}") from error
            return


def stop_plan(script: StopScript, name: str, grace: float) -> shim.StopPlan:
    """The driver's stop script in the shim's form."""
    return shim.StopPlan(
        name,
        grace,
        [shim.Step(step.send, step.expect) for step in script.request],
        [shim.Step(step.send, step.expect) for step in script.finish],
    )

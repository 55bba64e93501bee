"""A cgroup per pod, v1 or v2: limits its memory and processes, and finds whatever is left of it."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyvisor.planning.plan import Resources

ROOT: Final = Path("/sys/fs/cgroup")
PARENT: Final = "anyvisor"
_V1_CONTROLLERS: Final = ("memory", "pids", "cpu")
HELPER_PIDS: Final = 4096
"""Threads of one VMM: vCPUs, I/O workers and helpers; a cap against a runaway, not a budget."""


@dataclass(frozen=True, slots=True)
class Limits:
    """0 = no limit."""

    memory_bytes: int
    cpu_millis: int = 0
    cpu_request_millis: int = 0
    """What the pod is sure of beside others when processors are short."""
    pids: int = HELPER_PIDS


def limits(resources: Resources) -> Limits:
    """What a plan counts on: its limit, else all that it counted for the guest and beside it."""
    counted = max(resources.memory_bytes, resources.guest_memory_bytes + resources.overhead_bytes)
    return Limits(resources.memory_limit_bytes or counted, resources.cpu_limit_millis, resources.cpu_millis)


def shares(millis: int) -> int:
    """Processor shares of a request in a cgroup v1, as a kubelet counts them: 1024, the default, a processor."""
    return min(max(millis * 1024 // 1000, 2), 1 << 18)


def weight(millis: int) -> int:
    """The same in a cgroup v2: its default, 100, a processor."""
    return min(max(millis // 10, 1), 10_000)


def _node_millis() -> int:
    """Of all pods together: beside the host's other processes they weigh as much as the node has processors."""
    return (os.cpu_count() or 1) * 1000


def create(instance: str, pod_uid: str, limit: Limits, root: Path = ROOT) -> tuple[str, ...]:
    """Make the pod's cgroups; their directories, none where this host lets us make none."""
    if os.geteuid() != 0:
        return ()
    made: list[str] = []
    with contextlib.suppress(OSError):
        if (root / "cgroup.controllers").exists():
            made.append(str(_create_v2(root / PARENT / instance / pod_uid, limit)))
        else:
            made += [str(path) for path in _create_v1(root, instance, pod_uid, limit)]
    return tuple(made)


def find(instance: str, pod_uid: str, root: Path = ROOT) -> tuple[str, ...]:
    """The pod's cgroups that are there, also after a crash that came before they were on record."""
    bases = [root, *(root / controller for controller in _V1_CONTROLLERS)]
    paths = [base / PARENT / instance / pod_uid for base in bases]
    return tuple(str(path) for path in paths if (path / "cgroup.procs").exists())


def _create_v2(path: Path, limit: Limits) -> Path:
    for parent in (path.parent.parent, path.parent):
        parent.mkdir(exist_ok=True)
    for parent in (path.parent.parent.parent, path.parent.parent, path.parent):
        for controller in _V1_CONTROLLERS:
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    for parent in (path.parent.parent, path.parent):
        _write(parent / "cpu.weight", str(weight(_node_millis())))
    path.mkdir(exist_ok=True)
    if limit.memory_bytes:
        _write(path / "memory.max", str(limit.memory_bytes))
        _write(path / "memory.swap.max", "0")
        _write(path / "memory.oom.group", "1")
    if limit.cpu_request_millis:
        _write(path / "cpu.weight", str(weight(limit.cpu_request_millis)))
    if limit.cpu_millis:
        _write(path / "cpu.max", f"{limit.cpu_millis * 100} 100000")
    _write(path / "pids.max", str(limit.pids))
    return path


def _create_v1(root: Path, instance: str, pod_uid: str, limit: Limits) -> Iterator[Path]:
    for controller in _V1_CONTROLLERS:
        base = root / controller
        if not (base / "cgroup.procs").exists():
            continue
        path = base / PARENT / instance / pod_uid
        path.mkdir(parents=True, exist_ok=True)
        if controller == "memory" and limit.memory_bytes:
            _write(path / "memory.limit_in_bytes", str(limit.memory_bytes))
            _write(path / "memory.memsw.limit_in_bytes", str(limit.memory_bytes))
        if controller == "pids":
            _write(path / "pids.max", str(limit.pids))
        if controller == "cpu":
            for parent in (path.parent.parent, path.parent):
                _write(parent / "cpu.shares", str(shares(_node_millis())))
        if controller == "cpu" and limit.cpu_request_millis:
            _write(path / "cpu.shares", str(shares(limit.cpu_request_millis)))
        if controller == "cpu" and limit.cpu_millis:
            _write(path / "cpu.cfs_period_us", "100000")
            _write(path / "cpu.cfs_quota_us", str(limit.cpu_millis * 100))
        yield path


def set_memory(directories: tuple[str, ...], limit: int) -> None:
    """Change the limit of a pod's cgroups. Raises OSError where the kernel does not: too much is in use."""
    for directory in directories:
        path = Path(directory)
        if (path / "memory.max").exists():
            (path / "memory.max").write_text(str(limit))
        elif (path / "memory.limit_in_bytes").exists():
            _set_memory_v1(path, limit)


def _set_memory_v1(path: Path, limit: int) -> None:
    """Memory and swap together may never be less than memory alone, on the way neither."""
    both = path / "memory.memsw.limit_in_bytes"
    grows = limit > int((path / "memory.limit_in_bytes").read_text())
    if grows:
        _write(both, str(limit))
    (path / "memory.limit_in_bytes").write_text(str(limit))
    if not grows:
        _write(both, str(limit))


def _write(path: Path, value: str) -> None:
    """Set a limit where the kernel has it (swap accounting may be off)."""
    with contextlib.suppress(OSError):
        path.write_text(value)


def procs(directories: tuple[str, ...]) -> list[str]:
    """The files that a process joins the cgroups by."""
    return [f"{directory}/cgroup.procs" for directory in directories]


def members(directories: tuple[str, ...]) -> set[int]:
    """Pids in the cgroups, children of them too."""
    found: set[int] = set()
    for file in procs(directories):
        with contextlib.suppress(OSError):
            found.update(int(line) for line in Path(file).read_text().split())
    return found


def kill_all(directories: tuple[str, ...]) -> None:
    """End whatever is left in the cgroups."""
    for pid in members(directories):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def remove(directories: tuple[str, ...]) -> bool:
    """Remove empty cgroups; False when something still lives in one."""
    clean = True
    for directory in directories:
        try:
            Path(directory).rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            clean = False
    return clean


def remove_parents(instance: str, root: Path = ROOT) -> None:
    """Remove the directories in which an instance's pods had theirs, as far as they are empty."""
    bases = [root] if (root / "cgroup.controllers").exists() else [root / name for name in _V1_CONTROLLERS]
    for base in bases:
        for path in (*(base / PARENT).glob(f"{instance}-*"), base / PARENT):
            with contextlib.suppress(OSError):  # another instance has pods there
                path.rmdir()

"""The zygote: imports what the components share, forks them, keeps them alive, and forks launchers.

It is single-threaded and runs no event loop, so that a fork is safe at any moment. Components end with it
(PR_SET_PDEATHSIG) and are adopted anew by the next one; launchers, and so guests, never do.

Requests come as JSON over a SOCK_SEQPACKET socket from processes of the same user; descriptors beside them.
"""

import errno
import fcntl
import gc
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, cast

from anyvisor.embedded import system
from anyvisor.embedded.zygote_client import MAX_DESCRIPTORS, MAX_MESSAGE
from anyvisor.launcher import shim

_STABLE_SECONDS = 10.0
_MAX_BACKOFF_SECONDS = 10.0
_STOP_SECONDS = 5.0
_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Component:
    """A process of ours that the zygote keeps alive. `run` returns only when it is told to end."""

    name: str
    run: Callable[[], None]
    log: Path
    revision: str = ""
    """What it was made from; when another comes in its place (`reload`), the process starts anew."""


@dataclass(slots=True)
class _Child:
    component: Component
    pid: int = 0
    since: float = 0.0
    restarts: int = 0
    failures: int = 0
    due: float = 0.0
    leaving: bool = False
    """It is not wanted any more, and goes with its process."""


@dataclass(slots=True)
class _Server:
    children: list[_Child]
    listener: socket.socket
    private: Sequence[int] = ()
    reload: Callable[[], Sequence[Component]] | None = None
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    since: float = field(default_factory=time.monotonic)
    stopping: bool = False


def serve(
    components: Sequence[Component],
    socket_path: Path,
    ready: Callable[[], None],
    private: Sequence[int] = (),
    reload: Callable[[], Sequence[Component]] | None = None,
) -> None:
    """Fork `components`, answer requests at `socket_path`, and return when told to stop.

    `private` descriptors are the zygote's alone and closed in what it forks. `reload` tells on request what there
    should be now.
    """
    listener = _listen(socket_path)
    server = _Server([_Child(component) for component in components], listener, private, reload)
    wakeup, signalled = socket.socketpair()
    for end in (wakeup, signalled):
        end.setblocking(False)
    signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
    for number in _SIGNALS:
        signal.signal(number, _noted)
    gc.collect()
    gc.freeze()
    server.selector.register(listener, selectors.EVENT_READ)
    server.selector.register(wakeup, selectors.EVENT_READ)
    for child in server.children:
        _fork_component(server, child)
    ready()
    try:
        while not server.stopping:
            _turn(server, wakeup)
    finally:
        _stop_components(server)
        socket_path.unlink(missing_ok=True)
        listener.close()


def _noted(_number: int, _frame: object) -> None:
    """The wake-up descriptor carries the signal's number; nothing is done here."""


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    old = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(old)
    listener.listen(16)
    return listener


def _turn(server: _Server, wakeup: socket.socket) -> None:
    due = [child.due for child in server.children if child.pid == 0 and not child.leaving]
    timeout = max(0.0, min(due) - time.monotonic()) if due else None
    for key, _ in server.selector.select(timeout):
        if key.fileobj is wakeup:
            numbers = wakeup.recv(4096)
            if any(number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) for number in numbers):
                server.stopping = True
        elif key.fileobj is server.listener:
            _answer(server)
    _reap(server)
    now = time.monotonic()
    for child in server.children:
        if child.pid == 0 and child.due <= now and not (server.stopping or child.leaving):
            child.restarts += 1
            _fork_component(server, child)


def _reap(server: _Server) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for child in server.children:
            if child.pid == pid:
                _ended(child, os.waitstatus_to_exitcode(status))
        server.children = [child for child in server.children if child.pid or not child.leaving]


def _ended(child: _Child, code: int) -> None:
    now = time.monotonic()
    child.failures = 0 if now - child.since > _STABLE_SECONDS else child.failures + 1
    delay = 0.0 if child.failures < 2 else min(_MAX_BACKOFF_SECONDS, 0.1 * 2.0**child.failures)
    child.pid, child.due = 0, now + delay
    with child.component.log.open("a") as log:
        log.write(f"zygote: {child.component.name} ended ({_exit_words(code)}); started again in {delay:.1f} s\n")


def _exit_words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _fork(server: _Server) -> int:
    """Fork; no signal that is meant for the child is heard with the zygote's ears."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    pid = os.fork()
    if pid == 0:
        _leave_zygote(server)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _fork_component(server: _Server, child: _Child) -> None:
    parent = os.getpid()
    pid = _fork(server)
    if pid != 0:
        child.pid, child.since = pid, time.monotonic()
        return
    code = 1
    try:
        system.end_with_parent(parent)
        _redirect(os.open(child.component.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
        system.set_name(f"av-{child.component.name}")
        child.component.run()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - the root of a process: everything is logged, nothing escapes the fork
        for cause in causes(error):
            traceback.print_exception(cause)
    finally:
        sys.stderr.flush()
        os._exit(code)


def causes(error: BaseException) -> list[BaseException]:
    """What really went wrong below nested task groups, whose own traces say nothing."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [leaf for inner in group.exceptions for leaf in causes(inner)]
    return [error]


def _leave_zygote(server: _Server) -> None:
    """Undo in a child what belongs to the zygote alone."""
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    server.selector.close()
    server.listener.close()
    for descriptor in server.private:
        os.close(descriptor)


def _redirect(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for handle in (null, log):
        if handle > 2:
            os.close(handle)


def _stop_components(server: _Server) -> None:
    running = [child.pid for child in server.children if child.pid]
    for pid in running:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + _STOP_SECONDS
    for pid in running:
        descriptor = os.pidfd_open(pid)
        try:
            with selectors.DefaultSelector() as waiter:
                waiter.register(descriptor, selectors.EVENT_READ)
                if not waiter.select(max(0.0, end - time.monotonic())):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        finally:
            os.close(descriptor)


# Requests


def _answer(server: _Server) -> None:
    connection, _ = server.listener.accept()
    received: list[int] = []
    with connection:
        try:
            connection.settimeout(1.0)
            if not _is_ours(connection):
                return
            message, received, flags, _ = socket.recv_fds(connection, MAX_MESSAGE, MAX_DESCRIPTORS)
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise ValueError("the request is too large")
            reply, descriptors = _handle(server, json.loads(message), received)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reply, descriptors = {"error": str(error) or type(error).__name__}, []
        try:
            socket.send_fds(connection, [json.dumps(reply).encode()], descriptors)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET, errno.EAGAIN):
                raise
        finally:
            for descriptor in (*received, *descriptors):
                os.close(descriptor)


def _is_ours(connection: socket.socket) -> bool:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] in (0, os.geteuid())


def _handle(server: _Server, request: dict[str, Any], descriptors: list[int]) -> tuple[dict[str, Any], list[int]]:
    match request["op"]:
        case "launch":
            pid = _fork_launcher(server, request, descriptors)
            return {"pid": pid}, [os.pidfd_open(pid)]
        case "status":
            now = time.monotonic()
            rows = [
                {
                    "name": child.component.name,
                    "pid": child.pid,
                    "restarts": child.restarts,
                    "seconds": round(now - child.since, 1) if child.pid else 0,
                }
                for child in server.children
            ]
            return {"pid": os.getpid(), "seconds": round(now - server.since, 1), "components": rows}, []
        case "reload":
            return _reload(server), []
        case "stop":
            server.stopping = True
            return {}, []
        case unknown:
            raise ValueError(f"unknown request {unknown!r}")


def _reload(server: _Server) -> dict[str, Any]:
    """Start what is new, end what is gone, start anew what is made from something else."""
    if server.reload is None:
        raise ValueError("this zygote has nothing to reload")
    wanted = {component.name: component for component in server.reload()}
    known = {child.component.name for child in server.children if not child.leaving}
    changed = [child for child in server.children if _differs(child, wanted.get(child.component.name))]
    for child in changed:
        component = wanted.get(child.component.name)
        child.leaving = component is None
        child.component = component or child.component
        if child.pid:
            os.kill(child.pid, signal.SIGTERM)
    fresh = [_Child(component) for name, component in wanted.items() if name not in known]
    server.children = [child for child in server.children if child.pid or not child.leaving] + fresh
    for child in fresh:
        _fork_component(server, child)
    return {"changed": [child.component.name for child in (*changed, *fresh)]}


def _differs(child: _Child, component: Component | None) -> bool:
    return not child.leaving and (component is None or component.revision != child.component.revision)


def _fork_launcher(server: _Server, request: dict[str, Any], descriptors: list[int]) -> int:
    directory, uid, gid = str(request["directory"]), int(request["uid"]), int(request["gid"])
    groups = [str(path) for path in request["cgroup_procs"]]
    wants_netns = bool(request["netns"])
    if len(descriptors) != 1 + wants_netns:
        raise ValueError("a launch needs its log, and its network namespace where one is named")
    pid = _fork(server)
    if pid == 0:
        _run_launcher(directory, uid, gid, groups, descriptors)
    return pid


def _run_launcher(directory: str, uid: int, gid: int, groups: list[str], descriptors: list[int]) -> NoReturn:
    code = 70
    try:
        os.setsid()
        for path in groups:
            with open(path, "w") as file:
                file.write(str(os.getpid()))
        if len(descriptors) > 1:
            system.setns(descriptors[1], system.CLONE_NEWNET)
        log = fcntl.fcntl(descriptors[0], fcntl.F_DUPFD_CLOEXEC, 100)
        _redirect(log)
        os.closerange(3, 65_536)
        os.umask(0o077)
        _set_limits()
        system.become(uid, gid, system.device_groups())
        system.forbid_new_privileges()
        os.environ.clear()
        system.set_name("av-launcher")
        code = shim.run(directory)
    except BaseException:  # noqa: BLE001 - the root of a process: everything is logged, nothing escapes the fork
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _set_limits() -> None:
    """No core files, which would hold guest memory; else what we may have, as the agent may not raise it later."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))

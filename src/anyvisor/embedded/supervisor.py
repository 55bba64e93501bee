"""Starting, watching and stopping an instance from outside: what `up`, `down` and `status` do."""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from anyvisor.embedded.child import do_and_exit
from anyvisor.embedded.instance import Instance, InstanceError, lock_instance
from anyvisor.embedded.zygote_client import ZygoteClient, ZygoteError

LEAST_FREE_BYTES = 16 << 20
_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0


def start(instance: Instance, nodes: int, drivers: Sequence[str]) -> bool:
    """Start the zygote in a session of its own and wait until the API answers; False when it ran already.

    Raises:
        InstanceError: it did not come up; the message carries the log's last lines.
    """
    if status(instance) is not None:
        return False
    _check_room(instance)
    _wait_for_end_of_former(instance)
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        do_and_exit(lambda: _become_zygote(instance, nodes, drivers, writer))
    os.close(writer)
    try:
        return _wait_ready(instance, reader)
    finally:
        os.close(reader)
        os.waitpid(pid, 0)


def _check_room(instance: Instance) -> None:
    """A database that cannot be written, and a log that cannot say so, are all that would be seen of a full disk."""
    found = os.statvfs(instance.data_dir)
    free = found.f_bavail * found.f_frsize
    if free < LEAST_FREE_BYTES:
        raise InstanceError(
            f"{instance.data_dir} has {free // 1024} KiB free, and the control plane needs "
            f"{LEAST_FREE_BYTES >> 20} MiB: free space, or choose another --data-dir"
        )


def _wait_for_end_of_former(instance: Instance) -> None:
    """A zygote that was killed or is being stopped holds the instance for a moment more."""
    deadline = time.monotonic() + _STOP_SECONDS
    while True:
        try:
            os.close(lock_instance(instance))
        except InstanceError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _become_zygote(instance: Instance, nodes: int, drivers: Sequence[str], ready: int) -> None:
    """Leave the caller's session and terminal for good, then run; the parent reaps the intermediate process."""
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    log = os.open(instance.log("zygote"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.chdir("/")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from anyvisor.embedded import components

    components.run(instance, nodes, drivers, ready)


def _wait_ready(instance: Instance, reader: int) -> bool:
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    if poller.poll(_READY_SECONDS * 1000) and os.read(reader, 1) == b"+":
        return True
    raise InstanceError(f"the control plane did not come up:\n{last_lines(instance)}\nLogs are in {instance.log_dir}")


def last_lines(instance: Instance, count: int = 8) -> str:
    """The end of the newest log that says something."""
    logs = sorted(instance.log_dir.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in logs:
        text = path.read_bytes()[-4096:].decode("utf-8", "replace").strip()
        if text:
            return f"{path.name}:\n" + "\n".join(text.splitlines()[-count:])
    return "(the logs are empty)"


def status(instance: Instance) -> list[dict[str, Any]] | None:
    """Rows of the zygote and its components, or None when the instance does not run."""
    try:
        answer = ZygoteClient(instance.zygote_socket).status()
    except ZygoteError:
        return None
    zygote = {"name": "zygote", "pid": answer["pid"], "restarts": 0, "seconds": answer["seconds"]}
    return [zygote, *answer["components"]]


def stop(instance: Instance) -> bool:
    """End the control plane and wait for its end; False when it did not run. Guests go on.

    Raises:
        InstanceError: it does not end.
    """
    rows = status(instance)
    if rows is None:
        return False
    descriptor = os.pidfd_open(rows[0]["pid"])
    try:
        ZygoteClient(instance.zygote_socket).stop()
        _wait_end(descriptor, _STOP_SECONDS)
    except ZygoteError as error:
        raise InstanceError(str(error)) from error
    finally:
        os.close(descriptor)
    return True


def _wait_end(descriptor: int, seconds: float) -> None:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    if not poller.poll(seconds * 1000):
        raise InstanceError(f"the control plane did not end within {seconds:.0f} s")


def stay(instance: Instance, announce: Callable[[], None]) -> None:
    """Wait in the foreground until the zygote ends, or until a signal says to end it.

    `announce` is called once signals are heard: who reads what it says may send one.
    """
    rows = status(instance)
    if rows is None:
        return
    descriptor = os.pidfd_open(rows[0]["pid"])
    wakeup, signalled = socket.socketpair()
    signalled.setblocking(False)
    signal.set_wakeup_fd(signalled.fileno())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    poller.register(wakeup, select.POLLIN)
    announce()
    try:
        ended = {handle for handle, _ in poller.poll()}
        if descriptor not in ended:
            with contextlib.suppress(InstanceError):
                stop(instance)
    finally:
        signal.set_wakeup_fd(-1)
        os.close(descriptor)

"""The first program of a launcher: it takes one launch plan and becomes the VMM; `stop` is the stop hook.

    shim.py run DIR     bind DIR/shim.sock, take one plan and its descriptors from the agent, exec it
    shim.py stop DIR    ask the guest to shut down, through the agent or, without one, by DIR/stop

One file that stands alone on Debian's python3-minimal, which has no json, ctypes, resource or dataclasses. So
the wire form is NUL-separated records, key and value in turn; the agent imports the codec from here.

Hand-over (SOCK_SEQPACKET, the agent connects): `ping` is answered by `waiting`; a plan (one message, its
descriptors by SCM_RIGHTS in the order of its `fd` records) by `taken`, or by `refused NUL sentence`. A `helper`
record begins the program of a helper, which is started before the VMM. After `taken` the end of the connection
means that exec worked (or that the process ended: ask its pidfd), and `failed NUL sentence` that it did not.
Exactly one plan is taken, from uid 0 or from the shim's own.

Exit codes of `run`, before the VMM's own count: 0 ended by a signal while waiting, 64 wrong usage, 65 the
plan was refused, 66 the directory or the socket cannot be used, 71 the descriptors cannot be placed, 126 the
program cannot be executed, 127 there is no such program. Of `stop`: 0 the guest is down or the VMM is gone,
64 wrong usage, 66 the directory cannot be used, 75 the VMM could not be reached or ended in time.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time

EXIT_USAGE = 64
EXIT_PLAN = 65
EXIT_DIRECTORY = 66
EXIT_DESCRIPTORS = 71
EXIT_UNFINISHED = 75
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127

SOCKET_NAME = "shim.sock"
STOP_NAME = "stop"
AGENT_NAME = "agent.sock"
LOCK_NAME = "stop.lock"

PLAN_LIMIT = 128 * 1024
"""Bytes of one plan; below the default send buffer of a unix socket."""
DESCRIPTOR_LIMIT = 248
NUMBERS = range(3, 251)
"""Descriptor numbers that a plan may name."""
FREE_NUMBERS = 256
"""Received descriptors are parked from here on, out of the way of the plan's numbers."""
STOP_LIMIT = 64 * 1024

RECEIVE_SECONDS = 5.0
ANSWER_SECONDS = 2.0
"""An agent that has not answered the stop hook by then is taken for dead."""
REPEAT_SECONDS = 5.0
"""The last step of a stop request is sent again this often: a guest that still boots misses the first."""
FINISH_RESERVE = 2.0
"""Seconds before the end of the grace at which the hook ends the VMM itself, flushed."""
FINISH_DELAY = 1.5
"""Seconds that the agent has to read the end state before the VMM is ended."""

PING = b"ping"
WAITING = b"waiting"
TAKEN = b"taken"
REFUSED = b"refused"
FAILED = b"failed"
STOP = b"stop"
STOPPING = b"stopping"
DOWN = b"down"


class PlanError(Exception):
    """A plan or a stop script that cannot be read; the message says what is wrong with it."""


class Plan:
    """What to execute: `numbers[i]` is where the i-th descriptor that came with the plan goes.

    The descriptors of helpers follow, helper by helper. A helper has none of its own.
    """

    def __init__(
        self,
        argv: list[str],
        env: list[str],
        numbers: list[int],
        in_directory: bool = False,
        helpers: "list[Plan] | None" = None,
    ) -> None:
        self.argv = argv
        self.env = env
        self.numbers = numbers
        self.in_directory = in_directory
        self.helpers = helpers or []

    def descriptors(self) -> int:
        """How many come with it."""
        return len(self.numbers) + sum(len(helper.numbers) for helper in self.helpers)


class Step:
    """Send `send`, then read until `expect` came; either may be empty."""

    def __init__(self, send: bytes, expect: bytes) -> None:
        self.send = send
        self.expect = expect


class StopPlan:
    """How the hook stops a machine without a driver: an endpoint in the directory, and what to say there."""

    def __init__(self, endpoint: str, grace: float, request: list[Step], finish: list[Step]) -> None:
        self.endpoint = endpoint
        self.grace = grace
        self.request = request
        self.finish = finish


def encode_plan(plan: Plan) -> bytes:
    """Return the plan as one message; raises PlanError for one that no shim would take."""
    records = [("version", "1"), *_program(plan)]
    if plan.in_directory:
        records.append(("cwd", "launcher"))
    for helper in plan.helpers:
        records += [("helper", ""), *_program(helper)]
    data = _join(records)
    decode_plan(data)
    return data


def _program(plan: Plan) -> list[tuple[str, str]]:
    records = [("arg", value) for value in plan.argv]
    records += [("env", value) for value in plan.env]
    return records + [("fd", str(number)) for number in plan.numbers]


def decode_plan(data: bytes) -> Plan:
    """Read a plan; raises PlanError with the first thing that is wrong."""
    if len(data) > PLAN_LIMIT:
        raise PlanError(f"the plan has {len(data)} bytes, {PLAN_LIMIT} are allowed")
    plan = Plan([], [], [])
    program = plan
    for key, value in _split(data):
        if key == "arg":
            program.argv.append(value)
        elif key == "env":
            program.env.append(value)
        elif key == "fd":
            program.numbers.append(_number(value))
        elif key == "cwd" and value == "launcher":
            plan.in_directory = True
        elif key == "helper" and not value:
            program = Plan([], [], [])
            plan.helpers.append(program)
        else:
            raise PlanError(f"the plan has an unknown record {key!r}={value[:40]!r}")
    for each in (plan, *plan.helpers):
        _check_program(each)
    if plan.descriptors() > DESCRIPTOR_LIMIT:
        raise PlanError(f"the plan has {plan.descriptors()} descriptors, {DESCRIPTOR_LIMIT} are allowed")
    return plan


def _check_program(plan: Plan) -> None:
    if not plan.argv or not plan.argv[0].startswith("/"):
        raise PlanError("the plan names no program by an absolute path")
    if any("=" not in entry or entry.startswith("=") for entry in plan.env):
        raise PlanError("the plan has an environment entry without NAME=")
    if len(set(plan.numbers)) != len(plan.numbers):
        raise PlanError("the plan names a descriptor number twice")


def _number(value: str) -> int:
    number = int(value) if value.isascii() and value.isdecimal() and len(value) <= 3 else -1
    if number not in NUMBERS:
        raise PlanError(f"the plan names descriptor {value[:10]!r}; 3 to 250 are allowed")
    return number


def encode_stop(stop: StopPlan) -> bytes:
    """Return the content of DIR/stop."""
    records = [("version", "1"), ("endpoint", stop.endpoint), ("grace", str(stop.grace))]
    for name, steps in (("request", stop.request), ("finish", stop.finish)):
        for step in steps:
            records += [(f"{name}-send", step.send.hex()), (f"{name}-expect", step.expect.hex())]
    return _join(records)


def decode_stop(data: bytes) -> StopPlan:
    """Read the content of DIR/stop; raises PlanError."""
    stop = StopPlan("", 0.0, [], [])
    steps = {"request": stop.request, "finish": stop.finish}
    try:
        for key, value in _split(data):
            name, _, part = key.partition("-")
            if key == "endpoint":
                stop.endpoint = value
            elif key == "grace":
                stop.grace = float(value)
            elif name in steps and part == "send":
                steps[name].append(Step(bytes.fromhex(value), b""))
            elif name in steps and part == "expect" and steps[name]:
                steps[name][-1].expect = bytes.fromhex(value)
            else:
                raise PlanError(f"the stop script has an unknown record {key[:40]!r}")
    except ValueError as error:
        raise PlanError(f"the stop script cannot be read: {error}") from error
    if stop.endpoint.startswith("/") or ".." in stop.endpoint.split("/"):
        raise PlanError("the stop script names an endpoint outside of its directory")
    return stop


def _join(records: list[tuple[str, str]]) -> bytes:
    if any("\0" in key or "\0" in value for key, value in records):
        raise PlanError("a record contains a NUL byte")
    return b"".join(os.fsencode(f"{key}\0{value}\0") for key, value in [*records, ("end", "")])


def _split(data: bytes) -> list[tuple[str, str]]:
    parts = data.split(b"\0")
    if len(parts) % 2 == 0 or parts[-1] or parts[-3:-1] != [b"end", b""]:
        raise PlanError("the records are cut off: their last is not `end`")
    records = [(os.fsdecode(parts[i]), os.fsdecode(parts[i + 1])) for i in range(0, len(parts) - 3, 2)]
    if not records or records[0] != ("version", "1"):
        raise PlanError("the first record is not version 1; agent and launcher image do not fit together")
    return records[1:]


class _ShimError(Exception):
    """The shim cannot go on: an exit code and the sentence for it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def run(directory: str) -> int:
    """Wait for one plan in `directory` and execute it; returns an exit code only when that failed."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGURG):
            signal.signal(number, _end)
        where = _open_directory(directory)
        listener = _bind(where)
        connection, plan, received = _take(listener)
        os.unlink(SOCKET_NAME, dir_fd=where)
        listener.close()
        return _execute(connection, plan, received, where)
    except _ShimError as ended:
        _say(str(ended))
        return ended.code
    except OSError as error:
        _say(f"{directory}: {error}")
        return EXIT_DIRECTORY


def _end(number: int, frame: object) -> None:
    os._exit(0)


def _open_directory(directory: str) -> int:
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _ShimError(EXIT_DIRECTORY, f"cannot use {directory}: {error.strerror}") from error


def _bind(where: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    before = os.umask(0o077)
    try:
        listener.bind(f"/proc/self/fd/{where}/{SOCKET_NAME}")
        listener.listen(4)
    except OSError as error:
        raise _ShimError(EXIT_DIRECTORY, f"cannot bind {SOCKET_NAME}: {error.strerror}") from error
    finally:
        os.umask(before)
    return listener


def _take(listener: socket.socket) -> tuple[socket.socket, Plan, list[int]]:
    while True:
        connection, _ = listener.accept()
        taken = _receive(connection) if _is_agent(connection) else None
        if taken is not None:
            return (connection, *taken)
        connection.close()


def _is_agent(connection: socket.socket) -> bool:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    uid: int = struct.unpack("3i", credentials)[1]
    return uid in {0, os.geteuid()}


def _receive(connection: socket.socket) -> tuple[Plan, list[int]] | None:
    """Return the plan of this peer; None when it went, or was silent, without one."""
    connection.settimeout(RECEIVE_SECONDS)
    while True:
        try:
            data, received, flags, _ = socket.recv_fds(connection, PLAN_LIMIT + 1, DESCRIPTOR_LIMIT + 1)
            if data == PING and not received:
                connection.send(WAITING)
                continue
        except OSError:
            return None
        if not data:
            return None
        try:
            if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise PlanError("the plan or its descriptors were cut off")
            plan = decode_plan(data)
            if len(received) != plan.descriptors():
                raise PlanError(f"{len(received)} descriptors came, the plan names {plan.descriptors()}")
        except PlanError as error:
            _answer(connection, REFUSED, str(error))
            raise _ShimError(EXIT_PLAN, str(error)) from error
        return plan, received


def _answer(connection: socket.socket, kind: bytes, message: str) -> None:
    with contextlib.suppress(OSError):
        connection.send(kind + b"\0" + os.fsencode(message))


def _execute(connection: socket.socket, plan: Plan, received: list[int], where: int) -> int:
    connection = socket.socket(fileno=fcntl.fcntl(connection.detach(), fcntl.F_DUPFD_CLOEXEC, FREE_NUMBERS))
    try:
        _place(connection.fileno(), plan, received, where)
    except OSError as error:
        message = f"cannot begin: {error.strerror}"
        _answer(connection, FAILED, message)
        raise _ShimError(EXIT_DESCRIPTORS, message) from error
    try:
        _settle()
        connection.send(TAKEN)
        os.execve(plan.argv[0], plan.argv, _environment(plan))
    except OSError as error:
        message = f"cannot execute {plan.argv[0]}: {error.strerror}"
        _answer(connection, FAILED, message)
        code = EXIT_NOT_FOUND if error.errno == errno.ENOENT else EXIT_NOT_EXECUTABLE
        _say(message)
        return code


def _settle() -> None:
    """Make the process as a program expects it: Python ignores two signals, and exec keeps what is ignored."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o077)


def _environment(program: Plan) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in program.env)


def _place(kept: int, plan: Plan, received: list[int], where: int) -> None:
    """Start the helpers, number the plan's descriptors and close all others but the standard ones and `kept`."""
    if plan.in_directory:
        os.fchdir(where)
    else:
        os.chdir("/")
    parked = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FREE_NUMBERS) for number in received]
    os.closerange(3, FREE_NUMBERS)
    at = len(plan.numbers)
    for helper in plan.helpers:
        _start_helper(helper, parked[at : at + len(helper.numbers)])
        at += len(helper.numbers)
    for source, target in zip(parked, plan.numbers, strict=False):
        os.dup2(source, target, inheritable=True)
        os.close(source)
    os.closerange(FREE_NUMBERS, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def _start_helper(helper: Plan, parked: list[int]) -> None:
    """Start a helper by double fork, as the VMM will reap no children; raises OSError when it cannot be executed."""
    reader, low = os.pipe()
    writer = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, FREE_NUMBERS)
    os.close(low)
    if (child := os.fork()) == 0:
        try:
            if os.fork() == 0:
                _execute_helper(helper, parked, writer)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    failure = os.read(reader, 64)
    os.close(reader)
    if failure:
        number = int(failure)
        raise OSError(number, f"helper {helper.argv[0]} cannot be executed: {os.strerror(number)}")


def _execute_helper(helper: Plan, parked: list[int], writer: int) -> None:
    """The end of `writer` tells that exec worked; what is parked closes itself by it."""
    try:
        os.closerange(3, FREE_NUMBERS)
        for source, target in zip(parked, helper.numbers, strict=True):
            os.dup2(source, target, inheritable=True)
        _settle()
        os.execve(helper.argv[0], helper.argv, _environment(helper))
    except OSError as error:
        os.write(writer, str(error.errno or errno.EIO).encode())


def stop(directory: str) -> int:
    """Shut the guest down within its grace, with or without an agent; may run twice. Returns an exit code."""
    began = time.monotonic()
    where = _open_directory(directory)
    try:
        script = _read_stop(where)
    except PlanError as error:
        raise _ShimError(EXIT_DIRECTORY, f"{directory}/{STOP_NAME}: {error}") from error
    if script is None:
        return 0
    deadline = began + max(script.grace - FINISH_RESERVE, 0.0)
    if not _lock(where, deadline):
        return EXIT_UNFINISHED
    agent = ask_agent(where, deadline)
    if agent is not None:
        # Left open: its end tells the agent that this process is gone, and that it may end the VMM.
        _detach(where, script, None, agent.detach())
        return 0
    connection = connect(where, script.endpoint)
    if connection is None:
        return 0
    if play(connection, script.request, deadline):
        _detach(where, script, connection)
        return 0
    return 0 if finish(connection, script.finish, deadline + FINISH_RESERVE) else EXIT_UNFINISHED


def _read_stop(where: int) -> StopPlan | None:
    try:
        source = os.open(STOP_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=where)
    except FileNotFoundError:
        return None
    try:
        return decode_stop(os.read(source, STOP_LIMIT))
    finally:
        os.close(source)


def _lock(where: int, deadline: float) -> bool:
    """Wait for a hook that already runs (a restarted kubelet starts a second); held to the end."""
    lock = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=where)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)
        else:
            return True


def ask_agent(where: int, deadline: float) -> socket.socket | None:
    """Ask the agent to stop the guest; the connection to it when it said that the guest is down."""
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        agent.setblocking(False)
        agent.connect(f"/proc/self/fd/{where}/{AGENT_NAME}")
        agent.send(STOP)
        stopping = _read(agent, min(deadline, time.monotonic() + ANSWER_SECONDS)) == STOPPING
        if stopping and _read(agent, deadline) == DOWN:
            return agent
    except OSError:
        pass
    agent.close()
    return None


def connect(where: int, endpoint: str) -> socket.socket | None:
    """Connect to an endpoint in the directory; None when nothing listens there any more."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.setblocking(False)
        connection.connect(f"/proc/self/fd/{where}/{endpoint}")
    except OSError:
        connection.close()
        return None
    return connection


def play(connection: socket.socket, steps: list[Step], deadline: float) -> bool:
    """Play the steps; False when the time was up first.

    True when the last one's answer came, or when the VMM closed the connection.
    """
    pending = b""
    for index, step in enumerate(steps):
        last = index == len(steps) - 1
        if not _send(connection, step.send):
            return True
        again = time.monotonic() + REPEAT_SECONDS
        while step.expect not in pending:
            chunk = _read(connection, min(deadline, again) if last else deadline)
            if chunk == b"":
                return True
            if chunk is None and time.monotonic() >= deadline:
                return False
            if chunk is None:
                _send(connection, step.send)
                again = time.monotonic() + REPEAT_SECONDS
            else:
                pending = (pending + chunk)[-STOP_LIMIT:]
        pending = pending.partition(step.expect)[2] if step.expect else pending
    return True


def finish(connection: socket.socket, steps: list[Step], deadline: float) -> bool:
    """Play the steps that end the VMM and wait until it closed the connection; False when the time was up first."""
    if not play(connection, steps, deadline):
        return False
    while (data := _read(connection, deadline)) is not None:
        if not data:
            return True
    return False


def _send(connection: socket.socket, data: bytes) -> bool:
    try:
        return not data or connection.send(data) >= 0
    except BlockingIOError:
        return True
    except OSError:
        return False


def _read(connection: socket.socket, deadline: float) -> bytes | None:
    """Return what came, b"" at the end of the connection, None when the time is up."""
    left = deadline - time.monotonic()
    if left <= 0 or not select.select([connection], [], [], left)[0]:
        return None
    try:
        return connection.recv(16384)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _detach(where: int, script: StopPlan, connection: socket.socket | None, agent: int = -1) -> None:
    """Leave a process that ends the VMM soon: a hook that waited for PID 1 would fail with it."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    if agent >= 0:
        os.close(agent)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    until = time.monotonic() + FINISH_DELAY
    if connection is None:
        time.sleep(FINISH_DELAY)
        connection = connect(where, script.endpoint)
    else:
        while (left := _read(connection, until)) is not None and left != b"":
            pass
    if connection is not None:
        finish(connection, script.finish, time.monotonic() + ANSWER_SECONDS)
    os._exit(0)


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, os.fsencode(f"launcher: {message}\n"))


def main(arguments: list[str]) -> int:
    """Run one verb; returns its exit code, from `run` only when it failed."""
    if len(arguments) != 2 or arguments[0] not in {"run", "stop"}:
        _say("usage: shim.py run DIR | shim.py stop DIR")
        return EXIT_USAGE
    if arguments[0] == "run":
        return run(arguments[1])
    try:
        return stop(arguments[1])
    except _ShimError as ended:
        _say(str(ended))
        return ended.code
    except OSError as error:
        _say(f"{arguments[1]}: {error}")
        return EXIT_DIRECTORY


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

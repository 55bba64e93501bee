"""The shim as it runs in a launcher: a real process, a real hand-over, a real exec."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.launcher import shim

SHIM = Path(shim.__file__)
VMM = Path(__file__).parent / "vmm.py"
PYTHON = "/usr/bin/python3"
"""The system's, as another user may not reach the one of a virtual environment."""
DEADLINE = 10.0

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(
    argv=st.lists(text, max_size=5),
    env=st.lists(text, max_size=3),
    numbers=st.lists(st.integers(3, 250), unique=True, max_size=10),
    in_directory=st.booleans(),
)
def test_plan_survives_the_wire(argv: list[str], env: list[str], numbers: list[int], in_directory: bool):
    plan = shim.Plan(["/vmm", *argv], [f"N={value}" for value in env], numbers, in_directory)
    read = shim.decode_plan(shim.encode_plan(plan))
    assert vars(read) == vars(plan)


@given(
    st.lists(st.tuples(st.lists(text, max_size=3), st.lists(st.integers(3, 250), unique=True, max_size=5)), max_size=3)
)
def test_helpers_survive_the_wire(helpers: list[tuple[list[str], list[int]]]):
    programs = [shim.Plan(["/helper", *argv], ["A=b"], numbers) for argv, numbers in helpers]
    read = shim.decode_plan(shim.encode_plan(shim.Plan(["/vmm"], [], [4], True, programs)))
    assert [vars(each) for each in read.helpers] == [vars(each) for each in programs]
    assert (read.argv, read.numbers, read.in_directory) == (["/vmm"], [4], True)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_as_a_plan(data: bytes):
    with pytest.raises(shim.PlanError):
        shim.decode_plan(data)
    with pytest.raises(shim.PlanError):
        shim.decode_stop(data)


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=4))
def test_stop_script_survives_the_wire(steps: list[tuple[bytes, bytes]]):
    script = shim.StopPlan("stop.sock", 30.0, [shim.Step(*step) for step in steps], [shim.Step(b"q", b"")])
    read = shim.decode_stop(shim.encode_stop(script))
    assert (read.endpoint, read.grace) == ("stop.sock", 30.0)
    assert [(step.send, step.expect) for step in read.request] == steps
    assert [(step.send, step.expect) for step in read.finish] == [(b"q", b"")]


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        (shim.Plan([], [], []), "absolute"),
        (shim.Plan(["vmm"], [], []), "absolute"),
        (shim.Plan(["/vmm", "a\0b"], [], []), "NUL"),
        (shim.Plan(["/vmm"], ["NAME"], []), "NAME="),
        (shim.Plan(["/vmm"], [], [2]), "3 to 250"),
        (shim.Plan(["/vmm"], [], [251]), "3 to 250"),
        (shim.Plan(["/vmm"], [], [9, 9]), "twice"),
        (shim.Plan(["/vmm", "x" * shim.PLAN_LIMIT], [], []), "bytes"),
    ],
)
def test_a_plan_that_no_shim_takes_is_refused_by_the_sender(plan: shim.Plan, word: str):
    with pytest.raises(shim.PlanError, match=word):
        shim.encode_plan(plan)


@pytest.mark.parametrize("endpoint", ["/run/other.sock", "../other.sock", "a/../../b"])
def test_a_stop_endpoint_stays_in_its_directory(endpoint: str):
    with pytest.raises(shim.PlanError, match="outside"):
        shim.decode_stop(shim.encode_stop(shim.StopPlan(endpoint, 1.0, [], [])))


@dataclass
class Launcher:
    """A running shim and how to talk to it."""

    directory: Path
    process: subprocess.Popen[bytes]

    def connect(self) -> socket.socket:
        deadline = time.monotonic() + DEADLINE
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(DEADLINE)
        while True:
            try:
                connection.connect(str(self.directory / shim.SOCKET_NAME))
            except OSError:
                assert time.monotonic() < deadline
                assert self.process.poll() is None
                time.sleep(0.01)
            else:
                return connection

    def hand_over(self, plan: shim.Plan, descriptors: list[int]) -> list[bytes]:
        """Send a plan; the messages that came back until the end of the connection."""
        with self.connect() as connection:
            socket.send_fds(connection, [shim.encode_plan(plan)], descriptors)
            return list(iter(lambda: connection.recv(4096), b""))

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, errors.decode()


@pytest.fixture
def launcher(rundir: Path) -> Iterator[Launcher]:
    process = subprocess.Popen(
        ["/usr/bin/env", "-i", sys.executable, "-I", "-S", str(SHIM), "run", str(rundir)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    yield Launcher(rundir, process)
    process.kill()
    process.communicate()


def start_vmm(launcher: Launcher, *options: str) -> dict[str, Any]:
    """Have the shim become the test VMM with its control socket on descriptor 10; its report."""
    report = launcher.directory / "report"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(launcher.directory / "stop.sock"))
    listener.listen(1)
    argv = [sys.executable, "-I", "-S", str(VMM), "10", str(report), *options]
    answers = launcher.hand_over(shim.Plan(argv, ["GREETING=a=b"], [10]), [listener.fileno()])
    listener.close()
    assert answers == [shim.TAKEN]
    wait_for(report.exists)
    return json.loads(report.read_text())


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_vmm_gets_the_plan_and_nothing_else(launcher: Launcher):
    state = start_vmm(launcher)
    descriptors: dict[int, str] = {int(number): name for number, name in state["descriptors"].items()}
    listing = [number for number, name in descriptors.items() if name.endswith("/fd")]
    assert set(descriptors) - set(listing) == {0, 1, 2, 10}
    assert descriptors[10].startswith("socket:")
    coerced = {"LC_CTYPE"}
    assert {n: v for n, v in state["environment"].items() if n not in coerced} == {"GREETING": "a=b"}
    assert state["cwd"] == "/"
    assert state["ignored"] == []
    assert not (launcher.directory / shim.SOCKET_NAME).exists()


def test_the_vmm_may_work_in_its_directory(launcher: Launcher):
    report = launcher.directory / "cwd"
    launcher.hand_over(shim.Plan(["/bin/sh", "-c", "pwd > cwd.part; mv cwd.part cwd"], [], [], True), [])
    wait_for(report.exists)
    assert report.read_text().strip() == str(launcher.directory)


def test_helpers_run_beside_the_vmm_with_their_own_descriptors(launcher: Launcher):
    here = launcher.directory
    report, listener = here / "report", socket.socket(socket.AF_UNIX)
    listener.bind(str(here / "helper.sock"))
    listener.listen(1)
    ours, theirs = os.pipe()
    helper = shim.Plan([sys.executable, "-I", "-S", str(VMM), "7", str(report)], ["WHO=helper"], [7])
    plan = shim.Plan(["/bin/sh", "-c", "echo vmm >&9; read line <&8"], [], [8, 9], False, [helper])
    waits, ends = os.pipe()
    assert launcher.hand_over(plan, [waits, theirs, listener.fileno()]) == [shim.TAKEN]
    os.close(theirs)
    listener.close()
    assert os.read(ours, 10) == b"vmm\n"
    wait_for(report.exists)
    state = json.loads(report.read_text())
    assert {int(number) for number, name in state["descriptors"].items() if not name.endswith("/fd")} == {0, 1, 2, 7}
    assert state["environment"].get("WHO") == "helper"
    assert launcher.process.poll() is None
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(here / "helper.sock"))
        [pid] = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and of_session(int(entry), launcher)]
        assert os.stat(f"/proc/{pid}").st_uid == os.geteuid()
        client.sendall(b"quit\n")
    os.write(ends, b"\n")
    assert launcher.end()[0] == 0
    os.kill(pid, signal.SIGKILL)
    for descriptor in (ours, waits, ends):
        os.close(descriptor)


def of_session(pid: int, launcher: Launcher) -> bool:
    try:
        return pid != launcher.process.pid == os.getsid(pid)
    except ProcessLookupError:
        return False


def test_a_helper_that_cannot_be_executed_is_told_and_no_vmm_runs(launcher: Launcher):
    mark = launcher.directory / "mark"
    plan = shim.Plan(["/usr/bin/touch", str(mark)], [], [], False, [shim.Plan(["/no/such/helper"], [], [])])
    [answer] = launcher.hand_over(plan, [])
    assert answer.startswith(shim.FAILED + b"\0cannot begin: helper /no/such/helper cannot be executed")
    assert launcher.end()[0] == shim.EXIT_DESCRIPTORS
    assert not mark.exists()


@pytest.mark.parametrize(("program", "code"), [("/no/such/vmm", 127), ("/etc/passwd", 126)])
def test_a_program_that_cannot_be_executed_is_told_to_the_agent(launcher: Launcher, program: str, code: int):
    answers = launcher.hand_over(shim.Plan([program], [], []), [])
    assert answers[0] == shim.TAKEN
    assert answers[1].startswith(shim.FAILED + b"\0cannot execute " + program.encode())
    ended, errors = launcher.end()
    assert ended == code
    assert program in errors


def test_a_bad_plan_is_refused_and_ends_the_shim(launcher: Launcher):
    with launcher.connect() as connection:
        connection.send(b"arg\0/bin/sh\0")
        assert connection.recv(4096).startswith(shim.REFUSED + b"\0the records are cut off")
    assert launcher.end()[0] == shim.EXIT_PLAN


def test_descriptors_that_the_plan_does_not_name_are_refused(launcher: Launcher):
    answers = launcher.hand_over(shim.Plan(["/bin/true"], [], []), [0])
    assert answers[0].startswith(shim.REFUSED + b"\x001 descriptors came")
    assert launcher.end()[0] == shim.EXIT_PLAN


def test_a_ping_tells_that_no_plan_was_taken(launcher: Launcher):
    with launcher.connect() as connection:
        connection.send(shim.PING)
        assert connection.recv(100) == shim.WAITING
    assert launcher.hand_over(shim.Plan(["/bin/true"], [], []), []) == [shim.TAKEN]
    assert launcher.end()[0] == 0


def test_only_the_first_of_two_plans_is_taken(launcher: Launcher):
    marks = [launcher.directory / name for name in ("first", "second")]
    launcher.connect().close()
    os.kill(launcher.process.pid, signal.SIGSTOP)
    connections = [launcher.connect() for _ in marks]
    for connection, mark in zip(connections, marks, strict=True):
        connection.send(shim.encode_plan(shim.Plan(["/usr/bin/touch", str(mark)], [], [])))
    os.kill(launcher.process.pid, signal.SIGCONT)
    assert connections[0].recv(100) == shim.TAKEN
    with pytest.raises(ConnectionResetError):
        connections[1].recv(100)
    assert launcher.end()[0] == 0
    assert [mark.exists() for mark in marks] == [True, False]
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGURG, signal.SIGINT])
def test_a_signal_ends_the_waiting_shim_at_once(launcher: Launcher, number: signal.Signals):
    launcher.connect().close()
    launcher.process.send_signal(number)
    assert launcher.end() == (0, "")


@pytest.mark.skipif(os.geteuid() != 0 or not Path(PYTHON).exists(), reason="needs two uids")
def test_a_plan_of_another_user_is_not_taken(rundir: Path):
    rundir.chmod(0o777)
    copy = shutil.copy(SHIM, rundir)
    process = subprocess.Popen([PYTHON, "-I", "-S", copy, "run", str(rundir)], stderr=subprocess.PIPE, user=65533)
    program = f"""
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect({str(rundir / shim.SOCKET_NAME)!r})
try:
    s.send(b"ping")
    print(s.recv(100))
except OSError:
    print(b"")
"""
    launcher = Launcher(rundir, process)
    try:
        launcher.connect().close()
        (rundir / shim.SOCKET_NAME).chmod(0o777)
        seen = subprocess.run([PYTHON, "-I", "-S", "-c", program], user=65532, capture_output=True, check=True)
        assert seen.stdout == b"b''\n"
        with launcher.connect() as connection:
            connection.send(shim.PING)
            assert connection.recv(100) == shim.WAITING
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("arguments", [[], ["run"], ["play", "/tmp"], ["run", "a", "b"]])
def test_wrong_usage(arguments: list[str]):
    assert shim.main(arguments) == shim.EXIT_USAGE


@pytest.mark.parametrize("verb", ["run", "stop"])
def test_a_missing_directory(rundir: Path, verb: str):
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(SHIM), verb, str(rundir / "none")], capture_output=True, check=False
    )
    assert ended.returncode == shim.EXIT_DIRECTORY
    assert b"No such file" in ended.stderr


def test_a_second_shim_in_the_same_directory_is_refused(launcher: Launcher):
    launcher.connect().close()
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(SHIM), "run", str(launcher.directory)],
        capture_output=True,
        check=False,
    )
    assert ended.returncode == shim.EXIT_DIRECTORY
    assert b"shim.sock" in ended.stderr


def test_the_file_needs_no_more_than_the_minimal_python():
    program = f"import sys; sys.path.insert(0, {str(SHIM.parent)!r}); import shim; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, check=True, text=True
    ).stdout.split()
    assert not {"json", "ctypes", "resource", "dataclasses", "secrets", "typing", "inspect"} & set(loaded)


SCRIPT = shim.StopPlan("stop.sock", 6.0, [shim.Step(b"powerdown\n", b"DOWN")], [shim.Step(b"quit\n", b"never")])


def hook(directory: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-I", "-S", str(SHIM), "stop", str(directory)])


def test_without_a_machine_the_hook_has_nothing_to_stop(rundir: Path):
    assert hook(rundir).wait(DEADLINE) == 0


def test_the_hook_presses_the_button_and_leaves_one_that_finishes(launcher: Launcher):
    start_vmm(launcher)
    (launcher.directory / shim.STOP_NAME).write_bytes(shim.encode_stop(SCRIPT))
    assert hook(launcher.directory).wait(DEADLINE) == 0
    assert launcher.process.poll() is None, "the VMM holds its end state for a while after the hook"
    assert launcher.end()[0] == 0


def test_two_hooks_at_once_end_well(launcher: Launcher):
    start_vmm(launcher)
    (launcher.directory / shim.STOP_NAME).write_bytes(shim.encode_stop(SCRIPT))
    hooks = [hook(launcher.directory), hook(launcher.directory)]
    assert [process.wait(DEADLINE) for process in hooks] == [0, 0]
    assert launcher.end()[0] == 0


def test_a_guest_that_ignores_the_button_is_ended_before_the_grace_ends(launcher: Launcher):
    start_vmm(launcher, "ignore")
    (launcher.directory / shim.STOP_NAME).write_bytes(
        shim.encode_stop(shim.StopPlan("stop.sock", 3.0, SCRIPT.request, SCRIPT.finish))
    )
    began = time.monotonic()
    assert hook(launcher.directory).wait(DEADLINE) == 0
    assert launcher.end()[0] == 0
    assert 0.9 < time.monotonic() - began < 3.0


def test_the_hook_leaves_the_work_to_an_agent_that_answers(launcher: Launcher):
    start_vmm(launcher, "ignore")
    (launcher.directory / shim.STOP_NAME).write_bytes(shim.encode_stop(SCRIPT))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(launcher.directory / shim.AGENT_NAME))
        listener.listen(1)
        listener.settimeout(DEADLINE)
        process = hook(launcher.directory)
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(100) == shim.STOP
            connection.send(shim.STOPPING)
            connection.send(shim.DOWN)
            connection.settimeout(DEADLINE)
            assert connection.recv(100) == b""
            assert is_exiting(process.pid), "the end of the connection tells that the hook cannot be killed any more"
            assert process.wait(DEADLINE) == 0
    assert launcher.end()[0] == 0


def is_exiting(pid: int) -> bool:
    """Whether a process is past its end, as the kernel's flags of it say (PF_EXITING)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return bool(int(fields[6]) & 0x4)


@pytest.mark.parametrize("answers", [[], [shim.STOPPING]])
def test_an_agent_that_dies_in_between_does_not_stop_the_stop(launcher: Launcher, answers: list[bytes]):
    start_vmm(launcher)
    (launcher.directory / shim.STOP_NAME).write_bytes(shim.encode_stop(SCRIPT))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(launcher.directory / shim.AGENT_NAME))
        listener.listen(1)
        listener.settimeout(DEADLINE)
        process = hook(launcher.directory)
        connection, _ = listener.accept()
        for answer in answers:
            connection.send(answer)
        connection.close()
    assert process.wait(DEADLINE) == 0
    assert launcher.end()[0] == 0

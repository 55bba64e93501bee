"""Processes that are not our children."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from anyvisor.agent import linux, processes
from anyvisor.agent.processes import Exit, ProcessIdentity


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process
    process.kill()
    process.wait()


def identity(process: "subprocess.Popen[bytes]") -> ProcessIdentity:
    pidfd = os.pidfd_open(process.pid)
    try:
        found = processes.identify(process.pid, pidfd)
    finally:
        os.close(pidfd)
    assert found is not None
    return found


def test_a_process_is_found_again(sleeper: "subprocess.Popen[bytes]"):
    pidfd = processes.open_process(identity(sleeper))
    assert pidfd is not None
    assert not processes.has_ended(pidfd)
    processes.send_signal(pidfd, signal.SIGKILL)
    sleeper.wait()
    assert processes.has_ended(pidfd)
    processes.send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)


def test_another_boot_another_time_and_no_pid_are_nobody(sleeper: "subprocess.Popen[bytes]"):
    known = identity(sleeper)
    assert processes.open_process(ProcessIdentity("other", known.pid, known.start_time)) is None
    assert processes.open_process(ProcessIdentity(known.boot_id, known.pid, known.start_time + 1)) is None
    assert processes.open_process(ProcessIdentity(known.boot_id, 0, known.start_time)) is None
    assert processes.open_process(ProcessIdentity(known.boot_id, 2**22 + 1, 1)) is None


def test_a_zombie_is_not_running(sleeper: "subprocess.Popen[bytes]"):
    known = identity(sleeper)
    os.kill(sleeper.pid, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert processes.open_process(known) is None


def test_a_name_with_parentheses_does_not_move_the_start_time(tmp_path: Path):
    program = tmp_path / "a) b (c"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    process = subprocess.Popen([str(program), "600"])
    try:
        assert processes.start_time(process.pid) == identity(process).start_time > 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("command", "seen"), [("exit 0", Exit(code=0)), ("exit 3", Exit(code=3)), ("kill -9 $$", Exit(signal=9))]
)
async def test_the_exit_of_a_process_is_told_to_who_held_its_pidfd(command: str, seen: Exit):
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", f"read x; {command}", stdin=subprocess.PIPE)
    pidfd = os.pidfd_open(process.pid)
    try:
        assert process.stdin is not None
        process.stdin.close()
        await linux.readable(pidfd)
        await process.wait()
        found = await processes.exit_of(pidfd)
        assert found in (seen, Exit())  # Exit(): a kernel older than 6.15
    finally:
        os.close(pidfd)


@pytest.mark.parametrize(
    ("seen", "words"),
    [(Exit(code=3), "exit code 3"), (Exit(signal=9), "signal 9 (SIGKILL)"), (Exit(), "nobody saw")],
)
def test_an_exit_in_words(seen: Exit, words: str):
    assert words in seen.sentence()


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("memory.events", "low 0\nhigh 0\noom 3\noom_kill 2\noom_group_kill 0\n", 2),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("memory.events", "", 0),
        ("other", "oom_kill 5\n", 0),
    ],
)
def test_kills_for_memory_are_read_from_either_version(tmp_path: Path, name: str, text: str, count: int):
    (tmp_path / name).write_text(text)
    assert processes.out_of_memory_kills(str(tmp_path)) == count


def test_our_own_memory_cgroup_is_a_directory():
    assert Path(processes.memory_cgroup(os.getpid()) or "/").is_dir()


@pytest.mark.parametrize(
    ("listed", "mounted", "group"),
    [
        # As Kubernetes lays them out with the systemd driver (version 2), and with cgroupfs (version 1, and both).
        ("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope", ["cgroup.controllers"], "kubepods.slice"),
        ("5:memory:/kubepods/pod1/a\n0::/kubepods/pod1/a", ["memory/kubepods", "unified"], "memory/kubepods"),
        ("1:name=systemd:/x\n0::/kubepods/pod1/a", ["unified/kubepods"], "unified/kubepods"),
    ],
)
def test_the_group_that_counts_memory_is_found_in_both_versions(
    listed: str, mounted: list[str], group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text(listed + "\n")
    for name in mounted:
        (tmp_path / "sys" / name).mkdir(parents=True)
    monkeypatch.setattr(processes, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(processes, "_CGROUP_ROOT", tmp_path / "sys")
    found = Path(processes.memory_cgroup(7))
    assert found.is_relative_to(tmp_path / "sys" / group)
    found.mkdir(parents=True, exist_ok=True)
    (found / "memory.events").write_text("low 0\nhigh 3\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n")
    assert processes.out_of_memory_kills(str(found)) == 2

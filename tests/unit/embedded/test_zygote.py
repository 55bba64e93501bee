"""The zygote: keeps components alive, forks launchers, and never takes a launcher with it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anyvisor.embedded.zygote_client import LaunchRequest, ZygoteClient, ZygoteError

PROGRAM = """
import signal, sys, time
from pathlib import Path
from anyvisor.embedded.zygote import Component, serve
place = Path(sys.argv[1])

def steady():
    signal.pause()

def failing():
    raise RuntimeError("it broke")

fixed = [Component("steady", steady, place / "steady.log"), Component("failing", failing, place / "failing.log")]

def wanted():
    lines = (place / "wanted").read_text().split()
    return [*fixed, *(Component(name, steady, place / "more.log", revision) for name, revision in
                      (line.split(":") for line in lines))]

serve(fixed, place / "z.sock", lambda: (place / "ready").touch(), reload=wanted)
"""


def eventually(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def running(place: Path) -> Generator[tuple[subprocess.Popen[bytes], ZygoteClient]]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(place)])
    try:
        eventually((place / "ready").exists)
        yield process, ZygoteClient(place / "z.sock")
    finally:
        process.kill()
        process.wait()


def component(client: ZygoteClient, name: str) -> dict[str, int]:
    return next(row for row in client.status()["components"] if row["name"] == name)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_killed_component_comes_back(rundir: Path) -> None:
    with running(rundir) as (_, client):
        first = component(client, "steady")["pid"]
        os.kill(first, signal.SIGKILL)
        eventually(lambda: component(client, "steady")["pid"] not in (0, first))
        assert component(client, "steady")["restarts"] == 1
        assert "signal 9" in (rundir / "steady.log").read_text()


def test_one_that_fails_at_once_is_slowed_down_and_its_reason_kept(rundir: Path) -> None:
    with running(rundir) as (_, client):
        eventually(lambda: component(client, "failing")["restarts"] >= 3)
        time.sleep(0.5)
        assert component(client, "failing")["restarts"] < 10
        assert "it broke" in (rundir / "failing.log").read_text()


def test_components_end_with_the_zygote_and_launchers_do_not(rundir: Path) -> None:
    with running(rundir) as (process, client):
        launched = client.launch(request(rundir))
        steady = component(client, "steady")["pid"]
        process.kill()
        process.wait()
        eventually(lambda: not alive(steady))
        assert alive(launched.pid)
        os.kill(launched.pid, signal.SIGTERM)
        eventually(lambda: not alive(launched.pid))
        os.close(launched.pidfd)


def request(place: Path) -> LaunchRequest:
    directory = place / "l"
    directory.mkdir(mode=0o700, exist_ok=True)
    log = os.open(place / "launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    return LaunchRequest(str(directory), os.geteuid(), os.getegid(), log)


def test_a_launcher_has_a_session_of_its_own_and_nothing_of_ours(rundir: Path) -> None:
    with running(rundir) as (_, client):
        launched = client.launch(request(rundir))
        eventually((rundir / "l" / "shim.sock").exists)
        assert os.getsid(launched.pid) == launched.pid
        links = {os.readlink(link) for link in Path(f"/proc/{launched.pid}/fd").iterdir()}
        assert not any("z.sock" in link or "steady" in link for link in links)
        assert len(links) <= 4
        assert "NoNewPrivs:\t1" in Path(f"/proc/{launched.pid}/status").read_text()
        os.kill(launched.pid, signal.SIGKILL)
        os.close(launched.pidfd)


def test_a_launcher_that_cannot_join_its_group_ends_and_says_why(rundir: Path) -> None:
    with running(rundir) as (_, client):
        bad = LaunchRequest(
            str(rundir), os.geteuid(), os.getegid(), request(rundir).log, [str(rundir / "none" / "cgroup.procs")]
        )
        launched = client.launch(bad)
        eventually(lambda: not alive(launched.pid))
        os.close(launched.pidfd)
        assert component(client, "steady")["restarts"] == 0


def test_told_to_stop_it_ends_its_components(rundir: Path) -> None:
    with running(rundir) as (process, client):
        steady = component(client, "steady")["pid"]
        client.stop()
        assert process.wait(10) == 0
        assert not alive(steady)
        assert not (rundir / "z.sock").exists()


@pytest.mark.parametrize("message", [b"{", b"[]", b'{"op": "fly"}', b'{"op": "launch"}', b""])
def test_senseless_requests_are_refused_and_harm_nothing(rundir: Path, message: bytes) -> None:
    import socket

    with running(rundir) as (_, client):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(rundir / "z.sock"))
            connection.send(message)
            assert b"error" in connection.recv(4096)
        assert client.status()["components"]


def test_where_no_zygote_is_the_error_says_so(rundir: Path) -> None:
    with pytest.raises(ZygoteError, match="does not answer"):
        ZygoteClient(rundir / "none.sock").status()


def test_what_is_wanted_changes_while_it_runs(tmp_path: Path):
    with running(tmp_path) as (_, client):
        steady = component(client, "steady")["pid"]
        (tmp_path / "wanted").write_text("a:1 b:1")
        assert sorted(client.reload()) == ["a", "b"]
        first = {name: component(client, name)["pid"] for name in ("a", "b")}
        assert client.reload() == []
        (tmp_path / "wanted").write_text("a:2")
        assert sorted(client.reload()) == ["a", "b"]
        eventually(lambda: not alive(first["a"]) and not alive(first["b"]))
        eventually(lambda: component(client, "a")["pid"] not in (0, first["a"]))
        assert {row["name"] for row in client.status()["components"]} == {"steady", "failing", "a"}
        assert component(client, "steady")["pid"] == steady
        (tmp_path / "wanted").unlink()
        with pytest.raises(ZygoteError, match="wanted"):
            client.reload()
        assert component(client, "steady")["pid"] == steady

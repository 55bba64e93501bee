"""What runs in a launcher's pod beside the VMM: real processes at a real socket."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anyvisor.launcher import beside

PROGRAM = (sys.executable, "-I", "-S", beside.__file__)
SECONDS = 30.0


def test_words_survive_the_wire() -> None:
    words = ["--command", "ls", "--", "-l", "/ä"]
    assert beside.decode_probe(beside.encode_probe(words)) == words
    assert beside.decode_probe(b"stop") is None
    for bad in (["a\0b"], ["x" * beside.PROBE_LIMIT]):
        with pytest.raises(ValueError, match="NUL byte, or more than"):
            beside.encode_probe(bad)


@contextmanager
def agent(rundir: Path, answer: bytes) -> Generator[list[bytes]]:
    """Who answers one question at the agent's socket."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(rundir / beside.AGENT_NAME))
        listener.listen(1)
        listener.settimeout(SECONDS)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(beside.PROBE_LIMIT))
                if answer:
                    connection.send(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield asked
        thread.join()


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [(b"good", 0, ""), (b"bad\0test ended with 1: no", 1, "test ended with 1: no\n"), (b"", 75, "\n")],
)
def test_a_probe_ends_as_the_agent_says(rundir: Path, answer: bytes, code: int, said: str) -> None:
    with agent(rundir, answer) as asked:
        done = subprocess.run(
            [*PROGRAM, "probe", rundir, "--guestAgentPing"],
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    assert asked == [b"probe\0--guestAgentPing"]
    assert (done.returncode, done.stdout) == (code, said)


def test_a_probe_without_an_agent_says_so(rundir: Path) -> None:
    command = [*PROGRAM, "probe", rundir, "--guestAgentPing"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == beside.EXIT_UNANSWERED
    assert "the node's agent cannot be asked" in done.stdout


def test_the_log_is_copied_also_after_it_was_cut_short(rundir: Path) -> None:
    command = [*PROGRAM, "log", str(rundir), "serial0.log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as copying:
        assert copying.stdout is not None
        output = copying.stdout.fileno()
        log = os.open(rundir / "serial0.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(log, b"first line\n")
        assert read(output, 11) == b"first line\n"
        os.ftruncate(log, 0)
        os.write(log, b"later\n")
        assert read(output, 6) == b"later\n"
        os.close(log)
        copying.terminate()
        assert copying.wait(SECONDS) == 0


def read(descriptor: int, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += os.read(descriptor, count - len(found))
    return found


@pytest.mark.parametrize("words", [[], ["log", "/run/l"], ["probe", "/run/l"], ["other", "a", "b"]])
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert beside.main(words) == beside.EXIT_USAGE
    assert "usage:" in capsys.readouterr().err

"""Programs that run in a launcher's pod beside the VMM, for Kubernetes' sake; like the shim, they stand alone.

    beside.py log DIR NAME        copy DIR/NAME to the standard output as it grows, until told to end
    beside.py probe DIR WORDS     ask the agent about the guest, as the words of `virt-probe` say

A pod's containers cannot reach the guest, nor does the kubelet: so `probe` hands its words to the agent of the node,
at the socket where the stop hook asks too (SOCK_SEQPACKET: `probe` and the words, NUL-separated; the answer is `good`,
or `bad` NUL sentence). The log may be cut short at any time, as the agent does before it fills its memory volume.

Exit codes: 0 told to end, or a good answer; 1 a bad one, with the sentence; 64 wrong usage; 66 the directory cannot
be used; 75 no agent answered.
"""

import os
import signal
import socket
import sys
import time

EXIT_BAD = 1
EXIT_USAGE = 64
EXIT_DIRECTORY = 66
EXIT_UNANSWERED = 75

AGENT_NAME = "agent.sock"
PROBE = b"probe"
GOOD = b"good"
BAD = b"bad"
PROBE_LIMIT = 16 * 1024
"""Bytes of one question, and of one answer."""
PROBE_SECONDS = 120.0
"""The kubelet ends a probe at its own time limit, which is shorter."""
LOOK_SECONDS = 0.3
CHUNK = 64 * 1024


def log(directory: str, name: str) -> int:
    """Copy the file to the standard output from its beginning, and again when it was cut short; waits for it first."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGURG):
        signal.signal(number, _end)
    where = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    source = _open(where, name)
    at = 0
    while True:
        size = os.fstat(source).st_size
        if size < at:
            at = 0
        if size > at:
            data = os.pread(source, min(CHUNK, size - at), at)
            at += len(data)
            _write(data)
        else:
            time.sleep(LOOK_SECONDS)


def _open(where: int, name: str) -> int:
    while True:
        try:
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=where)
        except FileNotFoundError:
            time.sleep(LOOK_SECONDS)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _end(number: int, frame: object) -> None:
    os._exit(0)


def encode_probe(words: list[str]) -> bytes:
    """The question as one message; raises ValueError for words that cannot be sent."""
    data = b"\0".join([PROBE, *map(os.fsencode, words)])
    if data.count(b"\0") != len(words) or len(data) > PROBE_LIMIT:
        raise ValueError(f"the words of a probe hold a NUL byte, or more than {PROBE_LIMIT} bytes")
    return data


def decode_probe(data: bytes) -> list[str] | None:
    """The words of a question; None when it is none."""
    first, *words = data.split(b"\0")
    return [word.decode(errors="replace") for word in words] if first == PROBE else None


def probe(directory: str, words: list[str]) -> int:
    """Ask the agent; the sentence of a bad answer goes to the standard output, from where the kubelet takes it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as agent:
        agent.settimeout(PROBE_SECONDS)
        try:
            agent.connect(f"{directory}/{AGENT_NAME}")
            agent.send(encode_probe(words))
            answer = agent.recv(PROBE_LIMIT)
        except (OSError, ValueError) as error:
            _write(os.fsencode(f"the node's agent cannot be asked: {error}\n"))
            return EXIT_UNANSWERED
    if answer == GOOD:
        return 0
    _write(answer.partition(b"\0")[2] + b"\n")
    return EXIT_BAD if answer else EXIT_UNANSWERED


def main(arguments: list[str]) -> int:
    """Run one verb; returns its exit code."""
    try:
        if len(arguments) == 3 and arguments[0] == "log":
            return log(arguments[1], arguments[2])
        if len(arguments) > 2 and arguments[0] == "probe":
            return probe(arguments[1], arguments[2:])
    except OSError as error:
        sys.stderr.write(f"launcher: {error}\n")
        return EXIT_DIRECTORY
    sys.stderr.write("usage: beside.py log DIR NAME | beside.py probe DIR WORDS\n")
    return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

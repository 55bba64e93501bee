"""A child process in the part of a VMM: run by the shim in tests, with the standard library alone.

usage: vmm.py LISTEN_DESCRIPTOR REPORT_FILE [ignore]

Writes what it was given (descriptors, environment, signals) to REPORT_FILE, then serves one client at a time
on the listening descriptor: `powerdown` is answered by `DOWN` (never with `ignore`), `quit` ends the process.
"""

import json
import os
import signal
import socket
import sys


def report(path: str) -> None:
    descriptors: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    state = {
        "descriptors": descriptors,
        "environment": dict(os.environ),
        "argv": sys.argv,
        "cwd": os.getcwd(),
        "ignored": [n for n in (signal.SIGTERM, signal.SIGURG) if signal.getsignal(n) is signal.SIG_IGN],
    }
    with open(path + ".part", "w") as file:
        json.dump(state, file)
    os.rename(path + ".part", path)


def serve(listener: socket.socket, ignore: bool) -> None:
    while True:
        client, _ = listener.accept()
        with client:
            while data := client.recv(4096):
                if b"powerdown" in data and not ignore:
                    client.sendall(b"DOWN\n")
                if b"quit" in data:
                    return


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    report(sys.argv[2])
    listener.listen(1)
    serve(listener, "ignore" in sys.argv[3:])


if __name__ == "__main__":
    main()

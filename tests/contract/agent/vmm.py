"""A process in the part of a VMM, with a "guest" that counts: run by the launcher shim, standard library alone.

In its working directory it serves a "display" that says who it is and then echoes, to any number of viewers.
Descriptors: 10 control socket, 11 the stop hook's, 12 the console's (all listening), 13 the console's log.
Control speaks lines: `run`, `powerdown`, `status`, `quit`; it answers `STATE x` and tells `DOWN` when the guest is
down. Like a real VMM, each socket serves one client, and the guest stalls when the console's client does not read.

usage: vmm.py STARTS_FILE
"""

import contextlib
import os
import socket
import sys
import threading
import time


class Guest:
    """Counts on its console; takes words as commands."""

    def __init__(self) -> None:
        self.state = "prelaunch"
        self.deaf = False
        self.changed = threading.Condition()
        self.console: socket.socket | None = None

    def set(self, state: str) -> None:
        with self.changed:
            if self.state != "down":
                self.state = state
            self.changed.notify_all()

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(13, data)
        console = self.console
        if console is not None:
            try:
                console.sendall(data)
            except OSError:
                self.console = None

    def run(self) -> None:
        with self.changed:
            while self.state == "prelaunch":
                self.changed.wait()
        count = 0
        while self.state == "running":
            count += 1
            self.write(b"tick %d\r\n" % count)
            time.sleep(0.02)

    def powerdown(self) -> None:
        if not self.deaf:
            self.write(b"shutting down\r\n")
            self.set("down")

    def command(self, word: bytes) -> None:
        if word == b"poweroff":
            self.set("down")
        elif word == b"crash":
            os.abort()
        elif word == b"exit":
            os.write(2, b"vmm: the guest's BIOS caught fire\n")
            os._exit(3)
        elif word == b"eat":
            eaten: list[bytes] = []
            while True:
                eaten.append(bytes(range(256)) * 65536)
        elif word == b"deaf":
            self.deaf = True
        elif word == b"flood":
            for _ in range(2000):
                self.write(b"x" * 4094 + b"\r\n")
            self.write(b"flooded\r\n")
        else:
            self.write(b"echo " + word + b"\r\n")


def serve_control(guest: Guest, listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=tell_down, args=(guest, client), daemon=True).start()
        pending = b""
        try:
            client.sendall(b"STATE %s\n" % guest.state.encode())
            while data := client.recv(4096):
                pending += data
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    if line == b"run":
                        guest.set("running")
                        client.sendall(b"STATE running\n")
                    elif line == b"powerdown":
                        guest.powerdown()
                    elif line == b"status":
                        client.sendall(b"STATE %s\n" % guest.state.encode())
                    elif line == b"quit":
                        os._exit(0)
        except OSError:
            pass
        client.close()


def tell_down(guest: Guest, client: socket.socket) -> None:
    with guest.changed:
        while guest.state != "down":
            guest.changed.wait()
    with contextlib.suppress(OSError):
        client.sendall(b"DOWN\n")


def serve_console(guest: Guest, listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        guest.console = client
        try:
            while data := client.recv(4096):
                for word in data.split():
                    threading.Thread(target=guest.command, args=(word,), daemon=True).start()
        except OSError:
            pass
        guest.console = None
        client.close()


def serve_display() -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("display.sock")
    listener.listen()
    while True:
        client, _ = listener.accept()
        threading.Thread(target=echo, args=(client,), daemon=True).start()


def echo(client: socket.socket) -> None:
    with client, contextlib.suppress(OSError):
        client.sendall(b"RFB 003.008\n")
        while data := client.recv(65536):
            client.sendall(data)


def main() -> None:
    mark = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(mark, b"%d\n" % os.getpid())
    os.close(mark)
    guest = Guest()
    for serve, number in ((serve_control, 10), (serve_control, 11), (serve_console, 12)):
        listener = socket.socket(fileno=number)
        threading.Thread(target=serve, args=(guest, listener), daemon=True).start()
    threading.Thread(target=serve_display, daemon=True).start()
    guest.run()
    threading.Event().wait()


if __name__ == "__main__":
    main()

"""The QEMU driver: one process per node, which talks to each machine's QEMU over a channel that the agent gave it."""

from pathlib import Path

from anyvisor.hri.kit.driver import Driver

EMULATOR = "/usr/bin/qemu-system-x86_64"


def create_driver(state: Path) -> Driver:
    """The driver; it keeps the facts of the node in the directory `state`."""
    from anyvisor.drivers.qemu.service import QemuDriver  # late: a client of the translation needs no service

    return QemuDriver(cache=state / "facts.json")


def is_present() -> bool:
    """Whether its VMM is on this machine."""
    return Path(EMULATOR).exists()


def main(hri_socket: str, fd_socket: str) -> None:
    """Serve the HRI on two unix sockets until a signal; the facts of the node are kept beside the first."""
    from anyvisor.hri.kit.process import run  # late: a client of the translation needs no server

    run(create_driver(Path(hri_socket).parent), hri_socket, fd_socket)

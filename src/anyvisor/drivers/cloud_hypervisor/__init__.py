"""The Cloud Hypervisor driver: one process per node, which talks to each machine's VMM over what the agent gave it."""

import os
from pathlib import Path

from anyvisor.hri.kit.driver import Driver


def create_driver(state: Path, binary: str = "") -> Driver:
    """The driver; it keeps the facts of the node in the directory `state`. `binary` may name the program."""
    from anyvisor.drivers.cloud_hypervisor.service import CloudHypervisorDriver  # late: translations need no service

    return CloudHypervisorDriver(binary, cache=state / "facts.json")


def is_present() -> bool:
    """Whether its VMM is on this machine."""
    from anyvisor.drivers.cloud_hypervisor.facts import binary_path

    return bool(binary_path("", os.environ))


def main(hri_socket: str, fd_socket: str, binary: str = "") -> None:
    """Serve the HRI on two unix sockets until a signal; the facts of the node are kept beside the first."""
    from anyvisor.hri.kit.process import run  # late: a client of the translation needs no server

    run(create_driver(Path(hri_socket).parent, binary), hri_socket, fd_socket)

"""The libvirt driver: one process per node, which has a libvirt daemon of that node run each machine as a domain.

The daemon starts QEMU, outside of any launcher (launch mode `external`), so this driver is for single machines. Disks
reach QEMU as descriptors of the agent's (`virDomainFDAssociate`, libvirt 9.0), as with every other driver.
"""

import importlib.util
import os
from pathlib import Path
from typing import Final

from anyvisor.hri.kit.driver import Driver

SOCKETS: Final = ("/run/libvirt/virtqemud-sock", "/run/libvirt/libvirt-sock")
"""Where the daemons of a system listen: the modular one, and the older one for all hypervisors."""
USER: Final = "nobody"
"""The client library works for no user without an account."""
GROUPS: Final = ("libvirt",)
"""Those who may talk to the daemon."""


def uri() -> str:
    """The daemon: what libvirt's own variable names, else the system's where there is one, else the user's."""
    system = any(Path(each).exists() for each in SOCKETS)
    return os.environ.get("LIBVIRT_DEFAULT_URI", "") or ("qemu:///system" if system else "qemu:///session")


def create_driver(state: Path) -> Driver:
    """The driver; it keeps the facts of the node in the directory `state`."""
    from anyvisor.drivers.libvirt.service import LibvirtDriver  # late: a client of the translation needs no service

    return LibvirtDriver(uri(), cache=state / "facts.json")


def is_present() -> bool:
    """Whether libvirt is on this machine: its daemon, or a variable that names one, and the Python binding."""
    named = "LIBVIRT_DEFAULT_URI" in os.environ
    return (named or any(Path(each).exists() for each in SOCKETS)) and importlib.util.find_spec("libvirt") is not None


def main(hri_socket: str, fd_socket: str) -> None:
    """Serve the HRI on two unix sockets until a signal; the facts of the node are kept beside the first."""
    from anyvisor.hri.kit.process import run  # late: a client of the translation needs no server

    run(create_driver(Path(hri_socket).parent), hri_socket, fd_socket)

"""Fixtures of the tests that boot guests."""

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from tests.machine.rig import Rig, running_rig

OUTSIDE = "avtest-out"
OUTSIDE_LINK = "avtest-olink"
OUTSIDE_ADDRESS = "192.168.78.2"


@pytest.fixture
async def rig(rundir: Path) -> AsyncGenerator[Rig]:
    """A QEMU driver in a process of its own, and the test as its agent."""
    if shutil.which("qemu-system-x86_64") is None:
        pytest.skip("qemu-system-x86_64 is not installed (Debian: apt-get install qemu-system-x86)")
    async with running_rig(rundir) as running:
        yield running


@pytest.fixture
def outside() -> Iterator[int]:
    """Another host, which knows no way to the pods' addresses."""
    remove_outside()
    batch = f"""
netns add {OUTSIDE}
link add {OUTSIDE_LINK} type veth peer name eth0 netns {OUTSIDE}
addr add 192.168.78.1/24 dev {OUTSIDE_LINK}
link set {OUTSIDE_LINK} up
"""
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True, timeout=20)
    inner = f"addr add {OUTSIDE_ADDRESS}/24 dev eth0\nlink set eth0 up\n"
    subprocess.run(["ip", "-n", OUTSIDE, "-batch", "-"], input=inner, text=True, check=True, timeout=20)
    descriptor = os.open(f"/run/netns/{OUTSIDE}", os.O_RDONLY | os.O_CLOEXEC)
    yield descriptor
    os.close(descriptor)
    remove_outside()


def remove_outside() -> None:
    for command in (["netns", "delete", OUTSIDE], ["link", "delete", OUTSIDE_LINK]):
        subprocess.run(["ip", *command], capture_output=True, check=False, timeout=20)


def everything() -> str:
    """What the host shows of its network."""
    commands = (["ip", "-o", "link"], ["ip", "netns"], ["ip", "route"], ["nft", "list", "tables"])
    shown = "".join(subprocess.check_output(command, text=True, timeout=20) for command in commands)
    settings = sorted(Path("/proc/sys/net/ipv4/conf").glob("*/forwarding"))
    return shown + "".join(f"{path}={path.read_text()}" for path in settings)

"""A guest behind address translation in a network namespace, with our DHCP server."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.agent.network import attach
from anyvisor.agent.network.namespace import inside
from anyvisor.agent.open_error import OpenError
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION
from tests import guests
from tests.driver_rig import machine_of
from tests.machine.rig import Guest, Rig

POD = "192.168.77.2"
POD_OBJECT = {"status": {"podIP": POD}}
NAME = "avtest-pod"
HOST_LINK = "avtest-host"


@pytest.fixture
def pod() -> Iterator[int]:
    """A network namespace with eth0, as a container network plug-in leaves it; the test's own end is the host."""
    if (
        os.geteuid() != 0
        or not shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin")
        or not Path("/dev/net/tun").exists()
    ):
        pytest.skip("needs root, iproute2, nftables and /dev/net/tun")
    remove()
    batch = f"""
netns add {NAME}
link add {HOST_LINK} type veth peer name eth0 netns {NAME}
addr add 192.168.77.1/24 dev {HOST_LINK}
link set {HOST_LINK} up
"""
    inner = f"addr add {POD}/24 dev eth0\nlink set eth0 up mtu 1400\nroute add default via 192.168.77.1\n"
    ip("-batch", "-", text=batch)
    ip("-n", NAME, "-batch", "-", text=inner)
    descriptor = os.open(f"/run/netns/{NAME}", os.O_RDONLY | os.O_CLOEXEC)
    yield descriptor
    os.close(descriptor)
    remove()


def ip(*arguments: str, text: str = "") -> None:
    subprocess.run(["ip", *arguments], input=text, text=True, check=True, timeout=20)


def remove() -> None:
    for command in (["netns", "delete", NAME], ["link", "delete", HOST_LINK]):
        subprocess.run(["ip", *command], capture_output=True, check=False, timeout=20)


def vmi(**interface: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "alpha", "namespace": "default", "uid": "u-1"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}, **interface}]}},
            "networks": [{"name": "default", "pod": {}}],
        },
    }


async def boot_linux(rig: Rig, network: Any) -> Guest:
    linux = guests.linux_guest()
    machine = machine_of("net", memory_mib=160)
    machine.accelerator = ACCELERATOR_EMULATION
    machine.boot.kernel.kernel_handle = "kernel"
    machine.boot.kernel.initrd_handle = "initrd"
    machine.boot.kernel.command_line = linux.command_line
    machine.nics.extend(network.nics)
    files = {
        "kernel": os.open(linux.kernel, os.O_RDONLY | os.O_CLOEXEC),
        "initrd": os.open(linux.initrd, os.O_RDONLY | os.O_CLOEXEC),
        **network.descriptors,
    }
    guest = await rig.boot(machine, files)
    network.close()  # what the VMM has been given, and the DHCP server, which is opened again on adoption
    return guest


@contextlib.asynccontextmanager
async def attached(spec: dict[str, Any], pod: int, *, adopted: bool) -> AsyncGenerator[Any]:
    network = await attach(spec, netns=pod, pod=POD_OBJECT, adopted=adopted)
    try:
        yield network
    finally:
        network.close()


async def test_guest_gets_a_lease_and_is_reached_at_the_pods_address(rig: Rig, pod: int) -> None:
    async with attached(vmi(macAddress="02:00:00:00:00:07"), pod, adopted=False) as network:
        assert network.status[0]["ipAddress"] == POD
        guest = await boot_linux(rig, network)
    # From here on the agent was killed and has adopted the guest: only the sockets are opened anew.
    async with attached(vmi(), pod, adopted=True) as network:
        assert network.descriptors == {}
        lease = await guest.logged(r"ANYVISOR address=(.*)\r")
        assert lease.startswith("10.0.2.2/24 gateway=10.0.2.1 dns=")
        assert lease.endswith("lease=4294967295")
        await guest.type("cat /sys/class/net/eth0/address /sys/class/net/eth0/mtu; hostname\n")
        await guest.logged("02:00:00:00:00:07\r\n1400\r\n")
        await guest.type("nc -l -p 7777 -e /bin/echo hello from the guest & sleep 1; echo listening\n")
        await guest.logged("\nlistening")
        assert await asyncio.to_thread(ask_guest) == b"hello from the guest\n"
        await guest.type("ping -c 1 -W 5 192.168.77.1 && echo out works\n")
        await guest.logged("\nout works")


def ask_guest() -> bytes:
    with socket.create_connection((POD, 7777), timeout=20) as connection:
        return connection.makefile("rb").read()


async def test_only_named_ports_are_forwarded(pod: int) -> None:
    async with attached(vmi(ports=[{"port": 80}, {"port": 53, "protocol": "UDP"}]), pod, adopted=False):
        rules = await inside(pod, lambda: subprocess.check_output(["nft", "list", "ruleset"], text=True, timeout=20))
    assert 'iifname "eth0" tcp dport 80 dnat to 10.0.2.2' in rules
    assert 'iifname "eth0" udp dport 53 dnat to 10.0.2.2' in rules
    assert rules.count("dnat") == 2


async def test_attaching_again_after_a_crash_replaces_what_was_set_up(pod: int) -> None:
    first = await attach(vmi(), netns=pod, pod=POD_OBJECT, adopted=False)
    for descriptor in first.descriptors.values():
        os.close(descriptor)
    first.descriptors.clear()
    second = await attach(vmi(), netns=pod, pod=POD_OBJECT, adopted=False)
    assert list(second.descriptors) == ["net/default/0"]
    first.close()
    second.close()
    second.close()


async def test_a_thread_in_the_namespace_leaves_ours_alone(pod: int) -> None:
    ours = os.readlink("/proc/self/ns/net")
    inner = await inside(pod, lambda: os.readlink("/proc/thread-self/ns/net"))
    assert inner != ours
    assert os.readlink("/proc/thread-self/ns/net") == ours


async def test_something_that_is_no_namespace_is_an_error_that_says_so(pod: int) -> None:
    file = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    with pytest.raises(OpenError, match="network namespace cannot be entered"):
        await attach(vmi(), netns=file, pod=POD_OBJECT, adopted=False)
    os.close(file)


async def test_a_bridged_guest_has_the_pods_own_address(rig: Rig, pod: int) -> None:
    """Also where the pod's address stands alone and its router is beside it, as some network plug-ins do it."""
    ip("-n", NAME, "-batch", "-", text=f"addr flush dev eth0\naddr add {POD}/32 dev eth0\n")
    ip("-n", NAME, "-batch", "-", text="route add 192.168.77.1 dev eth0\nroute add default via 192.168.77.1\n")
    spec = vmi(macAddress="02:00:00:00:00:09")
    spec["spec"]["domain"]["devices"]["interfaces"][0] |= {"bridge": {}}
    del spec["spec"]["domain"]["devices"]["interfaces"][0]["masquerade"]
    async with attached(spec, pod, adopted=False) as network:
        assert network.status[0]["ipAddress"] == POD
        guest = await boot_linux(rig, network)
    async with attached(spec, pod, adopted=True) as network:
        assert network.status[0]["ipAddress"] == POD, "what the pod had is found again"
        lease = await guest.logged(r"ANYVISOR address=(.*)\r")
        assert lease.startswith(f"{POD}/32 gateway=192.168.77.1 dns=")
        await guest.type("nc -l -p 7777 -e /bin/echo hello from the guest & sleep 1; echo listening\n")
        await guest.logged("\nlistening")
        assert await asyncio.to_thread(ask_guest) == b"hello from the guest\n"
        await guest.type("ping -c 1 -W 5 192.168.77.1 && echo out works\n")
        await guest.logged("\nout works")

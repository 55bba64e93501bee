"""VMs of the class `libvirt`: the daemon runs them, and everything else is as with any other class."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Instance, disk_vm, end, eventually, make_instance, tiny_vm
from tests.libvirt_daemon import Daemon, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon; its domains end with the test."""
    place = Path(tempfile.mkdtemp(prefix="av-lv-"))
    started = Daemon(place / "d")
    started.start()
    yield started
    started.clear()
    started.stop()
    shutil.rmtree(place)


@pytest.fixture
def instance(daemon: Daemon) -> Iterator[Instance]:
    """An instance that finds the daemon."""
    own = make_instance()
    own.environment["LIBVIRT_DEFAULT_URI"] = daemon.uri
    own.up()
    eventually(lambda: "libvirt.anyvisor.io" in healthy(own), 60, lambda: own.cli("nodes", "-o", "yaml", check=False))
    yield own
    end(own)


def healthy(instance: Instance) -> list[str]:
    """Drivers that can run a guest now."""
    nodes = instance.items("hypervisornodes")
    return [each["driver"] for node in nodes for each in node.get("status", {}).get("drivers", []) if each["healthy"]]


def domain_of(instance: Instance, name: str) -> str:
    vmi = instance.get("vmi", name)
    assert vmi is not None
    return f"anyvisor-{vmi['metadata']['uid']}"


def test_a_vm_lives_in_the_daemon(instance: Instance, daemon: Daemon) -> None:
    disk = disk_vm("disk")
    disk["spec"]["template"]["spec"]["hypervisor"] = "libvirt"
    instance.apply(disk)
    vmi = instance.wait_phase("disk")
    assert vmi["status"]["hypervisor"]["driver"] == "libvirt.anyvisor.io"
    assert daemon.domains() == [domain_of(instance, "disk")]
    counter = instance.counter("disk")

    instance.kill()
    instance.up()
    instance.wait_phase("disk")
    assert instance.counter("disk") > counter, "the guest went on and is adopted"

    kernel = tiny_vm("kernel")
    kernel["spec"]["template"]["spec"]["hypervisor"] = "libvirt"
    instance.apply(kernel)
    instance.wait_phase("kernel")
    instance.counter("kernel")
    instance.kubectl("delete", "vm", "kernel")
    assert daemon.domains() == [domain_of(instance, "disk")], "it obeyed its power button, and nothing of it is left"

    daemon.stop()
    instance.kubectl("delete", "vm", "disk", "--grace-period=0", "--wait=false")
    told = "must end the guest"
    eventually(lambda: told in instance.kubectl("get", "vmi", "disk", "-o", "yaml"), 60, lambda: instance.story("disk"))
    daemon.start()
    instance.wait_gone("vmi", "disk")
    assert daemon.domains() == []
    assert not list(Path(tempfile.gettempdir()).glob("anyvisor-libvirt-*/*-*")), os.listdir(tempfile.gettempdir())

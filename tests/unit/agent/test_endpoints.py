"""Endpoints: announced, bound, held by one at a time."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from anyvisor.agent import endpoints
from anyvisor.agent.descriptors import Descriptors
from anyvisor.agent.endpoints import EndpointError, Endpoints
from anyvisor.agent.launchers import Launcher
from anyvisor.hri.v1.types_pb2 import Endpoint

CONTROL = Endpoint(id="control", purpose=Endpoint.PURPOSE_CONTROL, exclusive=True, listen_descriptor=10)
STOP = Endpoint(id="stop", purpose=Endpoint.PURPOSE_STOP, vmm_path="sub/stop.sock")
CONSOLE = Endpoint(id="console/serial0", purpose=Endpoint.PURPOSE_CONSOLE, listen_descriptor=11, device_id="serial0")


@pytest.fixture
def launcher(rundir: Path) -> Iterator[Launcher]:
    found = Launcher(os.getpid(), os.pidfd_open(os.getpid()), os.open(rundir, os.O_RDONLY), os.geteuid(), os.getegid())
    yield found
    found.close()


def test_names_come_from_ids_or_from_the_vmm():
    records = endpoints.describe([CONTROL, STOP, CONSOLE])
    assert [record.name for record in records] == ["control.sock", "sub/stop.sock", "console-serial0.sock"]


@pytest.mark.parametrize(
    "endpoint",
    [
        Endpoint(id="", listen_descriptor=3),
        Endpoint(id="../x", listen_descriptor=3),
        Endpoint(id="a/b/c", listen_descriptor=3),
        Endpoint(id="x" * 300, listen_descriptor=3),
        Endpoint(id="a", vmm_path="/etc/passwd"),
        Endpoint(id="a", vmm_path="../x"),
        Endpoint(id="a", vmm_path="x/../../y"),
    ],
)
def test_an_endpoint_that_cannot_be_is_refused(endpoint: Endpoint):
    with pytest.raises(EndpointError):
        endpoints.describe([endpoint])


def test_two_of_one_id_are_refused():
    with pytest.raises(EndpointError, match="twice"):
        endpoints.describe([CONTROL, CONTROL])


async def test_an_exclusive_endpoint_has_one_holder(launcher: Launcher):
    records = endpoints.describe([CONTROL, CONSOLE])
    listeners = [socket.socket(fileno=endpoints.bind(launcher, record)) for record in records]
    table = Endpoints(launcher.directory, records)
    with await table.connect("control", "the driver"):
        with pytest.raises(EndpointError, match="held by the driver"):
            await table.connect("control", "the agent")
        table.release_all("the driver")
        (await table.connect("control", "the agent")).close()
        assert table.holder("control") == "the agent"
    for who in ("a", "b"):
        (await table.connect("console/serial0", who)).close()
    for listener in listeners:
        listener.close()
    table.release("control")
    with pytest.raises(EndpointError, match="does not answer"):
        await table.connect("control", "the agent")
    assert table.holder("control") is None
    with pytest.raises(EndpointError, match="no endpoint"):
        await table.connect("vnc", "the agent")


def test_binding_again_replaces_the_name(launcher: Launcher, rundir: Path):
    (record,) = endpoints.describe([CONTROL])
    first, second = endpoints.bind(launcher, record), endpoints.bind(launcher, record)
    assert (rundir / "control.sock").stat().st_mode & 0o777 == 0o700
    os.close(first)
    os.close(second)


def test_descriptors_are_closed_exactly_once():
    read, write = os.pipe()
    with Descriptors() as held:
        held.put("read", read)
        with pytest.raises(ValueError, match="twice"):
            held.put_all({"read": os.dup(write), "write": write})
        assert held.take("read") == read
        assert held.get("read") is None
    with pytest.raises(OSError):
        os.fstat(write)
    os.close(read)


def test_a_connection_waits_for_a_helper_and_leaves_no_name(launcher: Launcher, rundir: Path):
    first, second = endpoints.waiting_pair(launcher.directory)
    with first, second:
        assert os.listdir(rundir) == []
        first.sendall(b"early")
        accepted, _ = second.accept()
        with accepted:
            assert accepted.recv(16) == b"early"

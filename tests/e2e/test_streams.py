"""Streams of one Linux guest through the command line: its ports, its logs."""

import json
import re
import socket
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.conftest import BIN, Instance, end, eventually, make_instance
from tests.guests import linux_archive

VM = "lin"
LISTENER = r"while nc -l -p 7777 -e cat; do :; done & echo listening\ now"


@pytest.fixture(scope="module")
def linux() -> Iterator[Instance]:
    """An instance with a Linux guest that echoes on port 7777."""
    instance = make_instance()
    instance.cli("image", "import", str(linux_archive()), "--name", "linux")
    instance.up()
    arguments = ("--name", VM, "--memory", "192Mi", "--kernel-args", "console=ttyS0 quiet panic=-1")
    instance.cli("run", "linux", *arguments, "--wait")
    eventually(lambda: "ANYVISOR address=" in instance.cli("logs", VM), 120, lambda: instance.story(VM))
    type_line(instance, LISTENER)
    eventually(lambda: "listening now" in instance.cli("logs", VM), 60)
    yield instance
    end(instance)


def type_line(instance: Instance, line: str) -> None:
    instance.typed(VM, f"\n{line}")


@contextmanager
def running(instance: Instance, *words: str) -> "Generator[subprocess.Popen[bytes]]":
    """A command that is ended when the test is done with it."""
    command = [str(BIN / "anyvisor"), "--data-dir", str(instance.data_dir), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_port_on_standard_input_and_output(linux: Instance) -> None:
    with running(linux, "port-forward", "--stdio", f"vmi/{VM}", "7777") as process:
        assert process.stdin is not None
        process.stdin.write(b"over stdio\n")
        process.stdin.flush()
        assert line_of(process) == b"over stdio\n"
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_local_port_leads_to_the_guest(linux: Instance) -> None:
    with running(linux, "port-forward", VM, ":7777") as process:
        found = re.match(rb"127\.0\.0\.1:(\d+)/tcp leads to port 7777 of lin", line_of(process))
        assert found is not None
        port = int(found[1])
        for text in (b"first\n", b"x" * 30_000 + b"\n"):
            # Between two connections there is a moment when the guest does not listen.
            eventually(lambda text=text: echo(port, text) == text, 30)


def echo(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        try:
            connection.sendall(text)
            return connection.makefile("rb").readline()
        except ConnectionError:
            return b""


def test_a_port_on_which_nobody_listens_is_told(linux: Instance) -> None:
    said = linux.cli("port-forward", "--stdio", VM, "99", check=False, stdin="")
    assert "nothing listens on port 99/tcp of the guest" in said


def test_logs(linux: Instance) -> None:
    assert "ANYVISOR linux" in linux.cli("logs", VM)
    assert len(linux.cli("logs", VM, "--tail", "2").splitlines()) == 2
    with running(linux, "logs", VM, "-f", "--tail", "1") as following:
        assert line_of(following)
        type_line(linux, r"echo still\ here")
        while b"still here" not in (line := line_of(following)):
            assert line
    assert linux.cli("logs", VM, "--vmm") is not None
    assert "there is no VM nobody" in linux.cli("logs", "nobody", check=False)


def test_what_a_machine_uses_is_told(linux: Instance) -> None:
    (usage,) = json.loads(linux.cli("top", "-o", "json"))
    assert (usage["name"], usage["guest_memory"]) == (VM, 192 << 20)
    assert usage["memory"] > 32 << 20
    node = usage["node"]
    text = linux.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/metrics")
    counts = {name: float(value) for name, value in re.findall(r"^(kubevirt_vmi_\w+)\{.* (\S+)$", text, re.MULTILINE)}
    for name in ("cpu_usage_seconds_total", "vcpu_seconds_total", "network_transmit_packets_total"):
        assert counts[f"kubevirt_vmi_{name}"] > 0, name
    assert counts["kubevirt_vmi_memory_domain_bytes"] == 192 << 20
    objects = linux.kubectl("get", "--raw", "/metrics")
    assert 'kubevirt_number_of_vms{namespace="default"} 1' in objects
    assert 'kubevirt_workqueue_adds_total{name="vmi"}' in objects
    assert "answers healthz" in linux.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/v1/machines", check=False)


def test_the_list_joins_vms_and_runs(linux: Instance) -> None:
    header, row = linux.cli("list", "-o", "wide").splitlines()
    assert header.split() == ["NAME", "STATUS", "READY", "NODE", "AGE", "IP", "CLASS", "ACCELERATOR"]
    assert row.split()[:3] == [VM, "Running", "yes"]
    assert linux.cli("list", "-A", "-o", "name") == f"virtualmachine.kubevirt.io/{VM}\n"


def test_ssh_names_what_is_missing(linux: Instance) -> None:
    assert "there is no VM nobody" in linux.cli("ssh", "root@nobody", check=False)
    assert "is no VM" in linux.cli("ssh", "--", "-oProxyCommand=id", check=False)

"""The real virtctl, command by command, against a whole instance and one guest with agent, display and channels.

`ANYVISOR_VIRTCTL` names the program, which is built from KubeVirt's own source and is no part of this repository.
"""

import json
import os
import pty
import re
import select
import socket
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Instance, eventually, tiny_vm
from tests.guests import linux_with_agent_archive

PROGRAM = os.environ.get("ANYVISOR_VIRTCTL", "")
pytestmark = pytest.mark.skipif(
    not os.access(PROGRAM, os.X_OK), reason="ANYVISOR_VIRTCTL names no program: build virtctl from KubeVirt's source"
)
VM = "vm1"
ESCAPE = b"\x1d"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Virtctl:
    """The program with the instance's kubeconfig."""

    instance: Instance

    def command(self, *words: str) -> list[str]:
        return [PROGRAM, "--kubeconfig", str(self.instance.data_dir / "kubeconfig"), *words]

    def environment(self) -> dict[str, str]:
        """`virtctl ssh` runs itself without its flags."""
        return {**os.environ, "KUBECONFIG": str(self.instance.data_dir / "kubeconfig")}

    def run(self, *words: str, stdin: str | None = None) -> Ran:
        done = subprocess.run(
            self.command(*words),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=self.environment(),
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *words: str, stdin: str | None = None) -> str:
        ran = self.run(*words, stdin=stdin)
        assert ran.code == 0, (words, ran)
        return ran.out

    def fails(self, *words: str) -> str:
        ran = self.run(*words)
        assert ran.code == 1, (words, ran)
        return ran.err


def agent_vm() -> dict[str, Any]:
    vm = tiny_vm(VM, "Manual")
    domain = vm["spec"]["template"]["spec"]["domain"]
    domain["memory"]["guest"] = "256Mi"
    container = {"image": "agent", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img"}
    domain["firmware"] = {"kernelBoot": {"container": container, "kernelArgs": "console=ttyS0 quiet panic=-1"}}
    domain["devices"]["clientPassthrough"] = {}
    return vm


@pytest.fixture(scope="module")
def virtctl(shared: Instance) -> Iterator[Virtctl]:
    """With a VM that does not run yet."""
    shared.cli("image", "import", str(linux_with_agent_archive()), "--name", "agent")
    shared.apply(agent_vm())
    yield Virtctl(shared)
    shared.kubectl("delete", "vm", VM, "--ignore-not-found")


@pytest.fixture
def running(virtctl: Virtctl) -> Virtctl:
    """With the VM up and its agent there."""
    instance = virtctl.instance
    if instance.phase(VM) != "Running":
        virtctl.ok("start", VM)
        instance.wait_phase(VM)
    instance.kubectl("wait", f"vmi/{VM}", "--for=condition=AgentConnected", "--timeout=180s", seconds=200)
    return virtctl


def paused(instance: Instance) -> bool:
    conditions = (instance.get("vmi", VM) or {}).get("status", {}).get("conditions", [])
    return any(one["type"] == "Paused" and one["status"] == "True" for one in conditions)


def test_version_and_what_is_not_there(virtctl: Virtctl) -> None:
    assert re.search(r'Server Version.*GitVersion:"v1\.9\.', virtctl.ok("version"))
    for words in (("start", "gone"), ("stop", "gone"), ("restart", "gone"), ("pause", "vm", "gone"), ("console", VM)):
        assert "not found" in virtctl.fails(*words), words
    assert "is not a DataVolume or PersistentVolumeClaim" in virtctl.fails("addvolume", VM, "--volume-name", "gone")
    assert "Found no migration to cancel" in virtctl.fails("migrate-cancel", VM)
    assert "does not exist" in virtctl.run("vmexport", "delete", "gone").err


def test_start_and_pause(virtctl: Virtctl) -> None:
    instance = virtctl.instance
    assert "Dry Run" in virtctl.ok("start", VM, "--dry-run")
    assert instance.get("vmi", VM) is None
    assert "was scheduled to start" in virtctl.ok("start", VM, "--paused")
    instance.wait_phase(VM)
    eventually(lambda: paused(instance), 30)
    for kind in ("vm", "vmi"):
        assert "scheduled to unpause" in virtctl.ok("unpause", kind, VM)
        eventually(lambda: not paused(instance), 30)
        assert "scheduled to pause" in virtctl.ok("pause", kind, VM)
        eventually(lambda: paused(instance), 30)
    assert "VMI is already paused" in virtctl.fails("pause", "vmi", VM)
    virtctl.ok("unpause", "vmi", VM)


def test_what_the_guest_tells(running: Virtctl) -> None:
    assert json.loads(running.ok("guestosinfo", VM))["os"]["id"] == "anyvisor-test"
    assert json.loads(running.ok("userlist", VM))["items"] == []
    assert "items" in json.loads(running.ok("fslist", VM))
    assert yaml.safe_load(running.ok("expand", "--vm", VM))["kind"] == "VirtualMachine"
    assert "Permitted Devices" in running.ok("permitted-devices", "-n", "kubevirt")
    assert "feature gate ObjectGraph" in running.fails("objectgraph", VM)
    running.ok("adm", "log-verbosity", "--virt-api=5")
    assert "virt-api=5" in running.ok("adm", "log-verbosity", "--virt-api")
    running.ok("adm", "log-verbosity", "--reset")


def test_the_console_of_a_terminal(running: Virtctl) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen(running.command("console", VM), stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        try:
            until(master, b"Successfully connected")
            os.write(master, b"\necho over a te''rminal\n")
            until(master, b"over a terminal")
            # The escape counts as the first byte of a read.
            time.sleep(0.5)
            os.write(master, ESCAPE)
            assert process.wait(30) == 0
        finally:
            process.kill()
            os.close(master)


def until(terminal: int, marker: bytes, seconds: float = 60) -> None:
    seen, deadline = b"", time.monotonic() + seconds
    while marker not in seen:
        assert select.select([terminal], [], [], max(deadline - time.monotonic(), 0))[0], seen[-2000:]
        seen += os.read(terminal, 4096)


def test_display_and_usb(running: Virtctl, tmp_path: Path) -> None:
    picture = tmp_path / "screen.png"
    running.ok("vnc", "screenshot", VM, "-f", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with subprocess.Popen(running.command("vnc", VM, "--proxy-only"), stdout=subprocess.PIPE) as viewer:
        assert viewer.stdout is not None
        greeted(json.loads(viewer.stdout.readline())["port"], b"RFB 003.008\n")
        viewer.terminate()
    with listening(running, "usbredir", VM, "--no-launch") as port:
        greeted(port, bytes(4))


@contextmanager
def listening(virtctl: Virtctl, *words: str) -> Generator[int]:
    """A command that listens on a port of this machine and says so, until the block ends."""
    command = virtctl.command(*words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            yield int(next(found[1] for line in lines if (found := re.search(r"127\.0\.0\.1:(\d+)", line))))
        finally:
            process.terminate()


def fetched(port: int) -> bytes:
    """The page at a local port; nothing while nobody listens there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as page:
            page.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return page.makefile("rb").read()
    except OSError:
        return b""


def greeted(port: int, greeting: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        assert client.recv(len(greeting), socket.MSG_WAITALL) == greeting


def test_ports_of_the_guest(running: Virtctl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with listening(running, "port-forward", f"vm/{VM}", f"{port}:80"):
        eventually(lambda: b"hello from" in fetched(port), 60)
    running.ok("expose", "vmi", VM, "--name", "exposed", "--port", "80")
    service = running.instance.get("service", "exposed")
    assert service is not None
    assert service["spec"]["selector"] == {"vmi.kubevirt.io/id": VM}


def test_volumes_come_and_go(running: Virtctl) -> None:
    instance = running.instance
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}
    instance.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "more"}, "spec": claim})

    def phases() -> dict[str, str]:
        return {one["name"]: one.get("phase", "") for one in (instance.get("vmi", VM) or {})["status"]["volumeStatus"]}

    assert "Successfully submitted add volume" in running.ok("addvolume", VM, "--volume-name", "more")
    eventually(lambda: phases().get("more") == "Ready", 90, lambda: instance.story(VM))
    assert "Successfully submitted remove volume" in running.ok("removevolume", VM, "--volume-name", "more")
    eventually(lambda: "more" not in phases(), 90, lambda: instance.story(VM))
    assert "does not exist" in running.fails("removevolume", VM, "--volume-name", "more")


def test_reboot_reset_restart_and_stop(running: Virtctl) -> None:
    instance = running.instance
    assert "scheduled to soft-reboot" in running.ok("soft-reboot", VM)
    eventually(lambda: instance.console(VM).count("ANYVISOR ready") >= 2, 120, lambda: instance.story(VM))
    assert "scheduled to reset" in running.ok("reset", VM)
    eventually(lambda: instance.console(VM).count("ANYVISOR ready") >= 3, 120, lambda: instance.story(VM))
    assert "canceled evacuation" in running.ok("evacuate-cancel", "vm", VM)
    before = (instance.get("vmi", VM) or {})["metadata"]["uid"]
    assert "scheduled to restart" in running.ok("restart", VM)
    eventually(
        lambda: (instance.get("vmi", VM) or {"metadata": {"uid": before}})["metadata"]["uid"] != before,
        120,
        lambda: instance.story(VM),
    )
    instance.wait_phase(VM)
    assert "scheduled to stop" in running.ok("stop", VM, "--force", "--grace-period=0")
    instance.wait_gone("vmi", VM)


def test_credentials_and_manifests(virtctl: Virtctl) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl a"
    virtctl.ok("credentials", "add-ssh-key", VM, "--user", "root", "--value", key, "--create-secret", "--force")
    virtctl.ok("credentials", "remove-ssh-key", VM, "--user", "root", "--value", key)
    made = virtctl.ok("create", "vm", "--name", "made", "--memory", "64Mi", "--run-strategy", "Halted")
    virtctl.instance.kubectl("apply", "-f", "-", stdin=made)
    assert "not served yet" in virtctl.fails("migrate", VM) or virtctl.instance.get("vmi", VM) is None

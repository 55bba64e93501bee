"""An embedded instance under test, used through its public interfaces: the command line and kubectl."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anyvisor.cli import api
from anyvisor.cli.main import CommandError
from anyvisor.embedded.instance import open_instance
from tests.guests import disk_archive, tiny_archive

BIN = Path(sys.executable).parent
EXAMPLES = Path(__file__).parents[2] / "examples"
_SERVED = {
    **dict.fromkeys(("vm", "vms"), (api.KUBEVIRT, "virtualmachines")),
    **dict.fromkeys(("vmi", "vmis"), (api.KUBEVIRT, "virtualmachineinstances")),
    **dict.fromkeys(("pod", "pods"), ("/api/v1", "pods")),
    **dict.fromkeys(("service", "services"), ("/api/v1", "services")),
    "events": ("/api/v1", "events"),
    "endpointslices": ("/apis/discovery.k8s.io/v1", "endpointslices"),
}
"""Kinds that are asked for directly, with the group's path and the plural."""
COUNTER = re.compile(r"ANYVISOR t=(\d+)")


@dataclass
class Instance:
    """One instance in a directory of its own."""

    data_dir: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def cli(self, *words: str, check: bool = True, seconds: float = 120, stdin: str | None = None) -> str:
        """Run `anyvisor`; its standard output."""
        command = [str(BIN / "anyvisor"), "--data-dir", str(self.data_dir), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, input=stdin, env=self.environment
        )
        if check and done.returncode:
            raise AssertionError(f"anyvisor {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def kubectl(self, *words: str, check: bool = True, stdin: str | None = None, seconds: float = 120) -> str:
        """Run the real kubectl against the instance."""
        return self.cli("kubectl", *words, check=check, stdin=stdin, seconds=seconds)

    def up(self, *words: str) -> None:
        """Start the control plane, or find it running."""
        self.cli("up", "--detach", *words)

    def processes(self) -> dict[str, int]:
        """Name to pid of our processes; those that are being restarted are left out."""
        status = json.loads(self.cli("status", "-o", "json", check=False).splitlines()[0])
        return {row["name"]: row["pid"] for row in status["processes"] if row["pid"]}

    def kill(self, *names: str) -> None:
        """kill -9 of the named processes, or of all; returns when they are gone."""
        running = self.processes()
        pids = [running[name] for name in names] if names else list(running.values())
        ended = list(running.values()) if "zygote" in names else pids  # components end with the zygote
        handles = [os.pidfd_open(pid) for pid in ended]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for handle in handles:
            wait_readable(handle)
            os.close(handle)

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """An object, or None. Asked for over HTTPS where that is known how: what is waited for is asked for often, and
        each start of kubectl costs the guests their processor."""
        if kind in _SERVED:
            group, plural = _SERVED[kind]
            return self.answer(f"{group}/namespaces/{namespace}/{plural}/{name}")
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def items(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind."""
        if kind in _SERVED:
            group, plural = _SERVED[kind]
            return (self.answer(f"{group}/{plural}") or {})["items"]
        return json.loads(self.kubectl("get", kind, "-A", "-o", "json"))["items"]

    def answer(self, path: str) -> dict[str, Any] | None:
        """What stands at a path of the API; None for what is not there."""
        try:
            with closing(api.Api(open_instance(self.data_dir))) as server:
                return server.call("GET", path)
        except api.ApiRefusalError as error:
            if error.status == 404:
                return None
            raise AssertionError(f"GET {path}: {error}") from error
        except CommandError as error:
            raise AssertionError(f"GET {path}: {error}") from error

    def apply(self, obj: dict[str, Any]) -> None:
        """kubectl apply."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps(obj))

    def phase(self, name: str) -> str:
        """The VMI's phase; empty when there is none."""
        vmi = self.get("vmi", name)
        return (vmi or {}).get("status", {}).get("phase", "")

    def wait_phase(self, name: str, phase: str = "Running", seconds: float = 90) -> dict[str, Any]:
        """Wait for the VMI's phase; the VMI."""
        eventually(lambda: self.phase(name) == phase, seconds, lambda: self.story(name))
        found = self.get("vmi", name)
        assert found is not None
        return found

    def wait_gone(self, kind: str, name: str, seconds: float = 90) -> None:
        """Wait until the object is no more."""
        eventually(lambda: self.get(kind, name) is None, seconds, lambda: self.story(name))

    def story(self, name: str) -> str:
        """Everything that helps to see why a test failed."""
        parts = [
            self.cli("why", f"vm/{name}", check=False),
            self.kubectl("get", "vm,vmi,pods", "-A", "-o", "wide", check=False),
            self.kubectl("get", "events", "-A", check=False),
            self.kubectl("get", "vmi", name, "-o", "yaml", check=False)[-3000:],
        ]
        parts += [f"--- {log.name}\n{log.read_text(errors='replace')[-2500:]}" for log in sorted(self.logs())]
        return "\n".join(parts)

    def logs(self) -> list[Path]:
        """The log files."""
        return list((self.data_dir / "logs").glob("*.log"))

    def console(self, name: str, seconds: float = 1.5, until: str = "") -> str:
        """What the console shows within a few seconds or until a text comes, replay first."""
        return self.cli("console", name, "--seconds", str(seconds), "--until", until, check=False)

    def typed(self, name: str, script: str, seconds: float = 20) -> str:
        """Run a script in the shell of a Linux guest; what the console shows until its end, or for so many seconds."""
        end = f"typed-{time.monotonic_ns()}"
        words = ("console", name, "--seconds", str(seconds), "--until", f"{end}-42")
        return self.cli(*words, stdin=f"{script}\necho {end}-$((6*7))\n", check=False)

    def counter(self, name: str) -> int:
        """The newest counter value of the tiny guest."""
        values: list[int] = []

        def counted() -> bool:
            values.extend(int(text) for text in COUNTER.findall(self.console(name)))
            return bool(values)

        eventually(counted, 60, lambda: self.story(name))
        return values[-1]

    def vmm_pids(self) -> list[int]:
        """Pids of the instance's VMMs: programs other than ours that hold files of the instance."""
        return sorted(int(path.name) for path in Path("/proc").glob("[0-9]*") if self._is_vmm(path))

    def _is_vmm(self, path: Path) -> bool:
        places = (str(self.data_dir), f"/run/anyvisor/{self.identity}")
        try:
            if b"guest=" not in (path / "cmdline").read_bytes():
                return False
            return any(os.readlink(link).startswith(places) for link in (path / "fd").iterdir())
        except OSError:
            return False

    @property
    def identity(self) -> str:
        """The instance's id."""
        return json.loads((self.data_dir / "instance.json").read_text())["id"]


def wait_readable(handle: int, seconds: float = 10) -> None:
    """Wait for a pidfd's process to end."""
    import select

    poller = select.poll()
    poller.register(handle, select.POLLIN)
    assert poller.poll(seconds * 1000), "the process did not end"


def eventually(done: Callable[[], bool], seconds: float = 60, story: Callable[[], str] = lambda: "") -> None:
    """Ask again until it holds."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {seconds:.0f} s\n{story()}")
        time.sleep(0.2)


def tiny_vm(name: str, strategy: str = "Always", **domain: Any) -> dict[str, Any]:
    """A VM with the tiny guest: counts on its console, obeys the power button, answers input."""
    spec: dict[str, Any] = {
        "terminationGracePeriodSeconds": 20,
        "domain": {
            "memory": {"guest": "64Mi"},
            "firmware": {"kernelBoot": {"container": {"image": "tiny", "kernelPath": "/boot/vmlinuz"}}},
            "devices": {"interfaces": [{"name": "default", "masquerade": {}}], "disks": []},
            **domain,
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [],
    }
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {"runStrategy": strategy, "template": {"metadata": {"labels": {"app": name[:63]}}, "spec": spec}},
    }


def disk_vm(name: str, image: str = "disk") -> dict[str, Any]:
    """A VM that boots from a container disk by BIOS."""
    vm = tiny_vm(name)
    spec = vm["spec"]["template"]["spec"]
    del spec["domain"]["firmware"]
    spec["domain"]["devices"]["disks"] = [{"name": "root", "disk": {"bus": "virtio"}}]
    spec["volumes"] = [{"name": "root", "containerDisk": {"image": image}}]
    return vm


def example(name: str) -> str:
    """A manifest of `examples/`."""
    return (EXAMPLES / f"{name}.yaml").read_text()


def make_instance() -> Instance:
    """A fresh instance with the test images; not started."""
    instance = Instance(Path(tempfile.mkdtemp(prefix="anyvisor-e2e-")))
    for name, archive in (("tiny", tiny_archive()), ("disk", disk_archive())):
        instance.cli("image", "import", str(archive), "--name", name)
    return instance


def end(instance: Instance) -> None:
    """Stop and remove everything of the instance; it leaves nothing on the host."""
    instance.up()
    instance.cli("down", "--stop-vms", "--timeout", "60")
    place = Path("/run/anyvisor", instance.identity)
    assert not place.exists(), [str(path) for path in place.rglob("*")]
    shutil.rmtree(instance.data_dir)


@pytest.fixture(scope="module")
def shared() -> Iterator[Instance]:
    """One running instance for the tests of a module that leave it whole."""
    instance = make_instance()
    instance.up()
    yield instance
    end(instance)


@pytest.fixture
def instance() -> Iterator[Instance]:
    """A running instance of the test's own, to be broken at will."""
    own = make_instance()
    own.up()
    yield own
    end(own)

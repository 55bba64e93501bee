"""A whole cluster on this machine with the product installed in it: real pods, real guests under emulation."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyvisor import __version__
from guests import build as guests
from tests.cluster.installation import NAMESPACE, documents
from tests.cluster.kit import build
from tests.cluster.kit.control_plane import ControlPlane
from tests.cluster.kit.node import Node
from tools.images import __main__ as builder
from tools.images import oci

Json = dict[str, Any]
REGISTRY = "localhost/anyvisor"
PUBLISHED = builder.DEFAULT_REGISTRY
TINY = "localhost/guests/tiny:1"
DISK = "localhost/guests/disk:1"
LINUX = "localhost/guests/linux:1"
COUNTER = re.compile(r"ANYVISOR t=(\d+)")


@dataclass
class Cluster:
    """One control plane and its nodes."""

    plane: ControlPlane
    nodes: list[Node] = field(default_factory=list[Node])
    restarts: list[float] = field(default_factory=list[float])
    """When the API server was started anew, in seconds since the epoch."""

    def kubectl(self, *words: str, check: bool = True, stdin: str | None = None, seconds: float = 120) -> str:
        """Run kubectl as the admin."""
        return self.plane.kubectl(*words, check=check, stdin=stdin, seconds=seconds)

    archives: list[Path] = field(default_factory=list[Path])
    """Images that every node has."""
    attached: bool = False
    """Whether it was started by somebody else, so that its processes are not ours to end and to start."""

    def add_node(self) -> Node:
        """Start one more node with the images on it."""
        node = Node(self.plane, len(self.nodes) + 1)
        self.nodes.append(node)
        node.up()
        for archive in self.archives:
            node.load(archive)
        return node

    def install(self) -> None:
        """Install by the plain manifest, with images that are on the nodes; returns when everything is ready.

        Machines run in namespace `default`, where pods are admitted under the strictest of the pod security standards.
        """
        self.apply_product()
        self.kubectl("label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
        self.eventually("all components are ready", self.installed, 240)

    def apply_product(self, version: str = __version__) -> None:
        """Apply the plain manifest as of a version whose images are on the nodes; returns when all of them run."""
        text = json.dumps(documents()).replace(f"{PUBLISHED}/", f"{REGISTRY}/").replace(__version__, version)
        listed: list[Json] = json.loads(text.replace(__version__.replace(".", "-"), version.replace(".", "-")))
        self.plane.apply(*(one for one in listed if one["kind"] in ("CustomResourceDefinition", "Namespace")))
        self.plane.apply(*(one for one in listed if one["kind"] != "CustomResourceDefinition"))
        for one in listed:
            if one["kind"] in ("DaemonSet", "Deployment"):
                words = ("rollout", "status", f"{one['kind'].lower()}/{one['metadata']['name']}", "-n", NAMESPACE)
                self.kubectl(*words, "--timeout=240s", seconds=250)

    def restart_apiserver(self) -> None:
        """kill -9 of the API server, and a new one."""
        self.restarts.append(time.time())
        self.plane.processes.kill("apiserver")
        self.plane.start_apiserver(controllers=True)

    def installed(self) -> bool:
        """Whether every component runs, and a driver is healthy on each node."""
        found = self.plane.get("kubevirts.kubevirt.io", "kubevirt", NAMESPACE)
        if found.get("status", {}).get("phase") != "Deployed":
            return False
        nodes = self.plane.get("hypervisornodes.anyvisor.io").get("items", [])
        healthy = [one for one in nodes if any(d.get("healthy") for d in one.get("status", {}).get("drivers", []))]
        return len(healthy) == len(self.nodes)

    def anyvisor(self, *words: str, seconds: float = 600) -> "subprocess.CompletedProcess[str]":
        """Our command line, as the admin."""
        command = [Path(sys.executable).parent / "anyvisor", *words, "--kubeconfig", self.plane.admin]
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)

    def get(self, kind: str, name: str, namespace: str = "default") -> Json:
        """One object; {} when there is none."""
        return self.plane.get(kind, name, namespace)

    def phase(self, name: str) -> str:
        """The phase of a VMI."""
        return self.get("vmi", name).get("status", {}).get("phase", "")

    def uid(self, name: str) -> str:
        """The uid of a VMI, which is another for each run of a VM; empty when there is none."""
        return self.get("vmi", name).get("metadata", {}).get("uid", "")

    def launcher(self, name: str) -> Json:
        """The launcher pod of a VMI; {} when there is none."""
        words = ["get", "pods", "-l", f"vmi.kubevirt.io/id={name}", "-o", "json"]
        found: list[Json] = json.loads(self.kubectl(*words))["items"]
        return found[0] if found else {}

    def phase_of_pod(self, name: str) -> str:
        """The phase of a pod; empty when there is none."""
        return self.get("pod", name).get("status", {}).get("phase", "")

    def wait_phase(self, name: str, phase: str = "Running", seconds: float = 120) -> Json:
        """Wait for a VMI's phase; the VMI."""
        self.eventually(f"{name} is {phase}", lambda: self.phase(name) == phase, seconds, name)
        return self.get("vmi", name)

    def component_pid(self, app: str) -> int:
        """The host's pid of a component's first process; 0 when none runs."""
        pods = self.kubectl("get", "pods", "-n", NAMESPACE, "-l", f"app=anyvisor-{app}", "-o", "json")
        for pod in json.loads(pods)["items"]:
            for one in pod.get("status", {}).get("containerStatuses", []):
                if "running" in one["state"]:
                    return _first_process(one["containerID"].rpartition("/")[2])
        return 0

    def kill_component(self, app: str) -> None:
        """kill -9 of a component; returns when its next process runs."""
        pid = self.component_pid(app)
        assert pid > 1, f"no {app} runs"
        os.kill(pid, signal.SIGKILL)
        self.eventually(f"another {app} runs", lambda: self.component_pid(app) not in (0, pid), 60)

    def eventually(self, what: str, done: Callable[[], bool], seconds: float = 90, vm: str = "") -> None:
        """Ask again until it holds."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:.0f} s: {what}\n{self.story(vm)}")
            time.sleep(0.3)

    def story(self, vm: str = "") -> str:
        """Everything that helps to see why it is not so."""
        said = [
            self.kubectl("get", "nodes,pods,vm,vmi,hypervisornodes", "-A", "-o", "wide", check=False),
            self.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp", check=False)[-4000:],
        ]
        for app in ("controller", "gateway", "agent", "driver"):
            words = ("logs", "-n", NAMESPACE, "-l", f"app=anyvisor-{app}", "--tail=25", "--prefix")
            said.append(self.kubectl(*words, check=False))
        if vm:
            said.append(self.kubectl("get", "vmi", vm, "-o", "yaml", check=False)[-3000:])
        return "\n".join(said)


def _first_process(container: str) -> int:
    """The oldest process of a container; 0 when there is none."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if container in (place / "cgroup").read_text():
                found.append(int(place.name))
    return min(found, default=0)


def guest_archives(place: Path) -> list[Path]:
    """The guests' images, named as manifests name them."""
    made: list[Path] = []
    linux = guests.linux_with_agent()
    for name, files in (
        (LINUX, {"/boot/vmlinuz": linux.kernel, "/boot/initrd.img": linux.initrd}),
        (TINY, {"/boot/vmlinuz": guests.tiny()}),
        (DISK, {"/disk/disk.img": guests.disk()}),
    ):
        target = place / f"{name.replace('/', '-').replace(':', '-')}.tar"
        oci.write(target, name, [oci.files_layer(files)], oci.Config())
        made.append(target)
    return made


def product_archives() -> list[Path]:
    """The product's images. Raises rootfs.CannotBuildError."""
    out = builder.cache() / "test"
    return [builder.build(name, out, REGISTRY) for name in builder.offered()]


@contextmanager
def cluster(
    programs: Path, archives: list[Path], nodes: int = 1, place: Path | None = None, *, flags: Sequence[str] = ()
) -> Generator[Cluster]:
    """A cluster with the product installed, in a folder that is removed in the end."""
    place = place or Path(tempfile.mkdtemp(prefix="av-k8s-", dir="/tmp"))
    plane = ControlPlane(programs, place, public=True, api_flags=flags)
    made = Cluster(plane)
    try:
        plane.up(controllers=True, scheduler=True)
        made.archives = [*archives, *guest_archives(place)]
        for _ in range(nodes):
            made.add_node()
        made.install()
        yield made
    finally:
        for node in made.nodes:
            node.down()
        plane.down()
        with suppress(OSError):
            shutil.rmtree(place)


def attach(place: Path) -> Cluster:
    """A cluster that runs already; it is neither changed nor ended."""
    plane = ControlPlane(build.cache(), place, public=True)
    server = json.loads(plane.admin.read_text())["clusters"][0]["cluster"]["server"]
    plane.api_port = int(server.rpartition(":")[2])
    nodes = [Node.found(plane, int(path.name[4:])) for path in sorted(place.glob("node[1-9]"))]
    return Cluster(plane, nodes, attached=True)

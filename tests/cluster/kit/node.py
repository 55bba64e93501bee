"""Nodes of a test cluster on this machine: each with its own network, mounts, processes, containerd and kubelet.

One holder process owns a node's namespaces, so that the host's packet filter, mounts and process list stay as they
are; killing it ends every pod and mount of the node at once, as a power failure would. Files are shared with the host,
so sockets below the node's folder are reached by the same path from both.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from tests.cluster.kit import pause_image
from tests.cluster.kit.authority import Authority
from tests.cluster.kit.control_plane import HOST_IP, SERVICE_RANGE, ControlPlane
from tests.cluster.kit.settings import cni, containerd_config, kube_proxy_config, kubelet_config

BRIDGE: Final = "k8sbr"
NODES: Final = 3
PROGRAMS: Final = ("runc", "nft", "ip", "nsenter", "unshare", "gcc", "conntrack", "iptables")
_CGROUPS: Final = Path("/sys/fs/cgroup")


def lacking() -> list[str]:
    """Programs of this machine that a node needs and that are not there; root is one of them."""
    found = [name for name in PROGRAMS if shutil.which(name) is None]
    return found if os.geteuid() == 0 else ["root", *found]


@dataclass(slots=True)
class Node:
    """Node number 1 to 3 of a cluster."""

    plane: ControlPlane
    number: int = 1
    init: int = field(init=False, default=0)
    """The host's pid of the first process in the node's namespaces."""

    @classmethod
    def found(cls, plane: ControlPlane, number: int) -> Self:
        """A node that another process started."""
        made = cls(plane, number)
        made.init = int((made.place / "init").read_text())
        return made

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def address(self) -> str:
        return f"10.200.0.1{self.number}"

    @property
    def place(self) -> Path:
        return self.plane.place / self.name

    @property
    def pods(self) -> str:
        """The range of its pods' addresses."""
        return f"10.244.{self.number}.0/24"

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self.place / "containerd.sock"

    def up(self) -> None:
        """Start the node and wait until it is ready."""
        self._namespaces()
        self._network()
        self._cgroup()
        self._files()
        self.start_containerd()
        self.load(pause_image.archive(self.plane.place))
        self.start_kubelet()
        self.start_proxy()
        self.plane.wait(f"{self.name}.kubelet", self.ready)

    def down(self) -> None:
        """End the node at once with everything on it, and remove what it left on the host."""
        for name in ("kube-proxy", "kubelet", "containerd", "holder"):
            with contextlib.suppress(KeyError):
                self.plane.processes.kill(f"{self.name}.{name}")
        _run("ip", "link", "del", f"k8sh{self.number}", check=False)
        if not any(Path(f"/sys/class/net/{BRIDGE}/brif").glob("*")):
            _run("ip", "link", "del", BRIDGE, check=False)
        for folder in sorted(_CGROUPS.glob(f"*/k8s-{self.name}")):
            _remove_cgroups(folder)

    def ready(self) -> bool:
        """Whether the API server calls the node ready."""
        found = self.plane.get("node", self.name)
        conditions = found.get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def enter(self, *command: str | Path, check: bool = True) -> str:
        """Run a program in the node's namespaces."""
        return _run("nsenter", "-t", str(self.init), "-n", "-m", "-p", "--", *command, check=check)

    def load(self, archive: Path) -> None:
        """Import an image archive."""
        self.ctr("-n", "k8s.io", "images", "import", str(archive))

    def ctr(self, *words: str) -> str:
        """containerd's own command line."""
        return _run(self.plane.programs / "runtime" / "ctr", "-a", str(self.socket), *words)

    def start_containerd(self) -> None:
        """Start containerd and wait until it answers."""
        self._start("containerd", self.plane.programs / "runtime" / "containerd", "--config", self.place / "ctd.toml")

        def answers() -> bool:
            with contextlib.suppress(subprocess.CalledProcessError):
                return bool(self.ctr("version"))
            return False

        self.plane.wait(f"{self.name}.containerd", answers)

    def start_kubelet(self) -> None:
        """Start the kubelet."""
        self._start(
            "kubelet",
            self.plane.programs / "kubelet",
            f"--config={self.place}/kubelet.yaml",
            f"--kubeconfig={self.plane.kubeconfig(self.name)}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        )

    def start_proxy(self) -> None:
        """Start kube-proxy."""
        self._start("kube-proxy", self.plane.programs / "kube-proxy", f"--config={self.place}/proxy.yaml")

    def _start(self, name: str, *command: str | Path) -> None:
        path = f"{self.plane.programs / 'runtime'}:{os.environ['PATH']}:/usr/sbin:/sbin"
        enter = ["nsenter", "-t", str(self.init), "-n", "-m", "-p", "--"]
        self.plane.processes.start(f"{self.name}.{name}", [*enter, *command], {**os.environ, "PATH": path})

    def _namespaces(self) -> None:
        """Make the namespaces. Mounts are shared within them, or pods could not propagate theirs."""
        self.place.mkdir(exist_ok=True)
        pause = pause_image.program(self.plane.place)
        command = ["unshare", "-n", "-m", "-p", "-f", "--kill-child", "--propagation", "shared", "--mount-proc", pause]
        holder = self.plane.processes.start(f"{self.name}.holder", command)
        self.plane.wait(f"{self.name}.holder", lambda: bool(self._first_below(holder, pause)))
        self.init = self._first_below(holder, pause)
        (self.place / "init").write_text(str(self.init))

    def _first_below(self, holder: int, program: Path) -> int:
        children = Path(f"/proc/{holder}/task/{holder}/children")
        for child in children.read_text().split() if children.exists() else []:
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/exe").resolve() == program:
                    return int(child)
        return 0

    def _network(self) -> None:
        link = f"k8sh{self.number}"
        if not Path(f"/sys/class/net/{BRIDGE}").exists():
            _run("ip", "link", "add", BRIDGE, "type", "bridge")
            _run("ip", "addr", "add", f"{HOST_IP}/24", "dev", BRIDGE)
            _run("ip", "link", "set", BRIDGE, "up")
        _run("ip", "link", "add", link, "type", "veth", "peer", "name", "k8sn", "netns", str(self.init))
        _run("ip", "link", "set", link, "master", BRIDGE, "up")
        self.enter("ip", "addr", "add", f"{self.address}/24", "dev", "k8sn")
        for device in ("k8sn", "lo"):
            self.enter("ip", "link", "set", device, "up")
        self.enter("ip", "route", "add", "default", "via", HOST_IP)
        for other in range(1, NODES + 1):
            if other != self.number:
                self.enter("ip", "route", "add", f"10.244.{other}.0/24", "via", f"10.200.0.1{other}")
        _run("ip", "route", "replace", self.pods, "via", self.address)
        if not _run("ip", "route", "show", SERVICE_RANGE).strip():
            _run("ip", "route", "add", SERVICE_RANGE, "via", self.address)
        self.enter("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def _cgroup(self) -> None:
        """A control group of its own: two kubelets below one would remove each other's pods."""
        for hierarchy in _CGROUPS.iterdir():
            if not (hierarchy / "cgroup.procs").exists():
                continue
            own = hierarchy / f"k8s-{self.name}"
            own.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (own / name).exists():
                    (own / name).write_text((hierarchy / name).read_text())

    def _files(self) -> None:
        for name in ("kubelet", "anyvisor", "cni", "manifests"):
            (self.place / name).mkdir(exist_ok=True)
        # The kubelet's folder for device plugins is a constant, whatever its root directory is; agents keep their
        # records at one place, too. Each node sees folders of its own there.
        for name, seen in (("kubelet", "/var/lib/kubelet"), ("anyvisor", "/var/lib/anyvisor")):
            Path(seen).mkdir(parents=True, exist_ok=True)
            self.enter("mount", "--bind", self.place / name, seen)
        Authority(self.plane.pki, "ca").issue(f"{self.name}-server", self.name, hosts=[self.name, self.address])
        self.plane.issue(self.name, f"system:node:{self.name}", ["system:nodes"], HOST_IP)
        self.plane.issue("kube-proxy", "system:kube-proxy", host=HOST_IP)
        self.plane.kubectl(
            "create", "clusterrolebinding", "kube-proxy", "--clusterrole=system:node-proxier",
            "--user=system:kube-proxy", check=False,
        )  # fmt: skip
        (self.place / "ctd.toml").write_text(
            containerd_config(self.place, self.socket, self.plane.programs / "cni", pause_image.NAME)
        )
        (self.place / "cni" / "10-bridge.conflist").write_text(json.dumps(cni(self.place, self.pods)))
        (self.place / "kubelet.yaml").write_text(
            json.dumps(kubelet_config(self.place, self.plane.pki, self.name, self.address, self.socket))
        )
        (self.place / "proxy.yaml").write_text(
            json.dumps(kube_proxy_config(self.plane.kubeconfig("kube-proxy"), self.name, self.pods))
        )


def _run(*command: str | Path, check: bool = True) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout


def _remove_cgroups(folder: Path) -> None:
    """The holder's processes may take a moment to be reaped."""
    deadline = time.monotonic() + 5
    while folder.exists() and time.monotonic() < deadline:
        for path in sorted((p for p in folder.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
            with contextlib.suppress(OSError):
                path.rmdir()
        with contextlib.suppress(OSError):
            folder.rmdir()
        time.sleep(0.05)


def all_down(nodes: Sequence[Node]) -> None:
    """End several nodes."""
    for node in nodes:
        node.down()

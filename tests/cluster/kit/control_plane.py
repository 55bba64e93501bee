"""etcd, kube-apiserver and, where asked for, controller-manager and scheduler, on this host.

They listen on ports that nobody else uses, so that several control planes may run at once. On the host, because
webhooks and aggregated servers on 127.0.0.1 are then reached by the API server without any proxy.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.kit.authority import Authority, new_key, write_public
from tests.cluster.kit.processes import Processes

KUBECTL = Path(sys.executable).parent / "kubectl"
HOST_IP = "10.200.0.1"
"""Also where no node is, as the API server wants to advertise an address that is not loopback."""
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_IP = "10.96.0.1"
_LOCAL = "127.0.0.1"


class ClusterError(Exception):
    """A part of the cluster did not start; the message has the end of its log."""


class KubectlError(AssertionError):
    """kubectl failed; the message is what it said."""


@dataclass(slots=True)
class ControlPlane:
    """One control plane; everything that it writes is below `place`."""

    programs: Path
    place: Path
    processes: Processes = field(init=False)
    api_port: int = 0
    etcd_ports: tuple[int, int] = (0, 0)
    public: bool = False
    """Listen on all addresses, for nodes; else on loopback only."""
    api_flags: Sequence[str] = ()
    apiserver: Path | None = None
    """The folder of kube-apiserver, where it is not that of the other programs."""

    starts: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When the API server was started, and when it was ready: seconds since the epoch."""

    def __post_init__(self) -> None:
        self.processes = Processes(self.place / "log")
        ports = free_ports(3)
        self.api_port, self.etcd_ports = ports[0], (ports[1], ports[2])

    @property
    def pki(self) -> Path:
        return self.place / "pki"

    @property
    def admin(self) -> Path:
        """The kubeconfig of a cluster admin."""
        return self.kubeconfig("admin")

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of a component whose certificate was issued."""
        return self.place / f"{name}.kubeconfig"

    def up(self, *, controllers: bool = False, scheduler: bool = False) -> None:
        """Start everything and wait until it answers."""
        self._certificates()
        self._start_etcd()
        self.start_apiserver(controllers=controllers)
        if controllers:
            self.start_controller_manager()
        if scheduler:
            self.start_scheduler()
        if controllers:
            self.wait("controller-manager", lambda: self.has("serviceaccount", "default"))

    def down(self) -> None:
        """End everything at once."""
        self.processes.stop_all()

    def kubectl(self, *words: str, check: bool = True, stdin: str | None = None, seconds: float = 60) -> str:
        """Run kubectl as the admin; standard output, and the errors too where they are not raised."""
        command = [KUBECTL, "--kubeconfig", self.admin, *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, input=stdin)
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl {' '.join(words)}: no answer within {seconds:.0f} s") from error
        if check and done.returncode:
            raise KubectlError(f"kubectl {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, *objects: dict[str, Any], check: bool = True) -> str:
        """kubectl apply --server-side of some objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(listed), check=check)

    def get(self, kind: str, name: str = "", namespace: str = "default") -> dict[str, Any]:
        """One object, or the list of a kind; {} when it does not exist."""
        words = ["get", kind, *([name] if name else []), "-n", namespace, "-o", "json", "--ignore-not-found"]
        text = self.kubectl(*words)
        return json.loads(text) if text.strip() else {}

    def has(self, kind: str, name: str, namespace: str = "default") -> bool:
        """Whether an object exists."""
        return bool(self.kubectl("get", kind, name, "-n", namespace, "-o", "name", "--ignore-not-found", check=False))

    def wait(self, of: str, done: Callable[[], bool], seconds: float = 180) -> None:
        """Ask again until it holds; raises ClusterError with the log of process `of`.

        A question that fails, as to an API server that has just been started, is asked again too.
        """
        deadline = time.monotonic() + seconds
        while True:
            failed = ""
            try:
                if done():
                    return
            except KubectlError as error:
                failed = f"\n{error}"
            ended = of in self.processes._running and not self.processes.alive(of)
            if ended or time.monotonic() > deadline:
                why = "ended" if ended else f"is not ready after {seconds:.0f} s"
                raise ClusterError(f"{of} {why}:\n{self.processes.tail(of)}{failed}")
            time.sleep(0.1)

    def start_apiserver(self, *, controllers: bool) -> None:
        """Start kube-apiserver; without controllers, pods need no ServiceAccount."""
        pki = self.pki
        flags = [
            f"--etcd-servers=http://{_LOCAL}:{self.etcd_ports[0]}",
            f"--secure-port={self.api_port}",
            f"--bind-address={'0.0.0.0' if self.public else _LOCAL}",
            f"--advertise-address={HOST_IP}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki}/accounts.pub",
            f"--service-account-signing-key-file={pki}/accounts.key",
            "--authorization-mode=Node,RBAC",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-client-certificate={pki}/kubelet-client.crt",
            f"--kubelet-client-key={pki}/kubelet-client.key",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki}/front-proxy.crt",
            f"--proxy-client-key-file={pki}/front-proxy.key",
            *self.api_flags,
        ]
        if not controllers:
            flags.append("--disable-admission-plugins=ServiceAccount")
        program = (self.apiserver or self.programs) / "kube-apiserver"
        begun = time.time()
        self.processes.start("apiserver", [program, *flags])
        self.wait("apiserver", self.ready)
        self.starts.append((begun, time.time()))

    def audit(self) -> None:
        """Have the API server write down who asked for what; before it starts."""
        policy = self.place / "audit.json"
        rules: dict[str, Any] = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
        policy.write_text(json.dumps(rules | {"omitStages": ["RequestReceived", "ResponseStarted"]}))
        self.api_flags = (
            *self.api_flags,
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=2000",
        )

    @property
    def audit_log(self) -> Path:
        """One JSON document a line and request."""
        return self.place / "audit.log"

    def ready(self) -> bool:
        """Whether the API server says that it is ready."""
        return self.kubectl("get", "--raw", "/readyz", check=False) == "ok"

    def start_controller_manager(self) -> None:
        """Start kube-controller-manager."""
        config = self.kubeconfig("controller-manager")
        flags = [
            *(f"--{name}={config}" for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")),
            f"--bind-address={_LOCAL}",
            "--secure-port=0",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.pki}/accounts.key",
            f"--root-ca-file={self.pki}/ca.crt",
            f"--cluster-signing-cert-file={self.pki}/ca.crt",
            f"--cluster-signing-key-file={self.pki}/ca.key",
            "--allocate-node-cidrs=false",
        ]
        self.processes.start("controller-manager", [self.programs / "kube-controller-manager", *flags])

    def start_scheduler(self) -> None:
        """Start kube-scheduler."""
        config = self.kubeconfig("scheduler")
        flags = [
            *(f"--{name}={config}" for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")),
            f"--bind-address={_LOCAL}",
            "--secure-port=0",
            "--leader-elect=false",
        ]
        self.processes.start("scheduler", [self.programs / "kube-scheduler", *flags])

    def issue(self, name: str, user: str, groups: Sequence[str] = (), host: str = _LOCAL) -> Path:
        """Make a client certificate and its kubeconfig."""
        Authority(self.pki, "ca").issue(name, user, groups)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": f"https://{host}:{self.api_port}",
                        "certificate-authority": f"{self.pki}/ca.crt",
                    },
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {"client-certificate": f"{self.pki}/{name}.crt", "client-key": f"{self.pki}/{name}.key"},
                }
            ],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path = self.kubeconfig(name)
        path.write_text(json.dumps(config))
        return path

    def _start_etcd(self) -> None:
        data = self.place / "etcd"
        data.mkdir(mode=0o700, exist_ok=True)
        client, peer = (f"http://{_LOCAL}:{port}" for port in self.etcd_ports)
        flags = [
            f"--data-dir={data}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]
        self.processes.start("etcd", [self.programs / "etcd", *flags])

    def _certificates(self) -> None:
        self.pki.mkdir(parents=True, exist_ok=True)
        if (self.pki / "ca.crt").exists():
            return
        for authority in ("ca", "front-proxy-ca"):
            Authority(self.pki, authority).create()
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        addresses = (_LOCAL, HOST_IP, SERVICE_IP)
        Authority(self.pki, "ca").issue("apiserver", "kube-apiserver", hosts=[*names, *addresses])
        Authority(self.pki, "front-proxy-ca").issue("front-proxy", "front-proxy-client")
        write_public(new_key(self.pki / "accounts.key"), self.pki / "accounts.pub")
        for name, user, groups in (
            ("admin", "admin", ("system:masters",)),
            ("controller-manager", "system:kube-controller-manager", ()),
            ("scheduler", "system:kube-scheduler", ()),
            ("kubelet-client", "apiserver-kubelet-client", ("system:masters",)),
        ):
            self.issue(name, user, groups)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at; all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((_LOCAL, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def control_plane(
    programs: Path,
    *,
    controllers: bool = False,
    scheduler: bool = False,
    audit: bool = False,
    apiserver: Path | None = None,
) -> Generator[ControlPlane]:
    """Run a control plane of its own in a temporary folder; `apiserver` is the folder of another version's."""
    place = Path(tempfile.mkdtemp(prefix="av-k8s-", dir="/tmp"))
    plane = ControlPlane(programs, place, apiserver=apiserver)
    if audit:
        plane.audit()
    try:
        plane.up(controllers=controllers, scheduler=scheduler)
        yield plane
    finally:
        plane.down()
        shutil.rmtree(place, ignore_errors=True)

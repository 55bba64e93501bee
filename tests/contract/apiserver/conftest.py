"""An API server over TLS in its own process, and the real kubectl as its client."""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.contract.apiserver.pki import Pki, make_pki

Json = dict[str, Any]
KUBECTL = Path(sys.executable).with_name("kubectl")
SERVER = Path(__file__).with_name("serve.py")


@dataclass
class Kubectl:
    """Runs kubectl as one user of one server."""

    kubeconfig: Path
    home: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    def run(self, *args: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(self.kubeconfig), *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "HOME": str(self.home), **self.env},
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(args)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def __call__(self, *args: str, stdin: str | None = None) -> str:
        return self.run(*args, stdin=stdin).stdout

    def json(self, *args: str) -> Json:
        return json.loads(self(*args, "-o", "json"))

    def fails(self, *args: str, stdin: str | None = None) -> str:
        done = self.run(*args, stdin=stdin, check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(KUBECTL), "--kubeconfig", str(self.kubeconfig), *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(self.home)},
        )


@dataclass
class Server:
    """A running server process."""

    port: int
    pki: Pki
    root: Path
    process: subprocess.Popen[bytes]

    def kubectl(self, user: str = "kubernetes-admin", groups: tuple[str, ...] = ("system:masters",)) -> Kubectl:
        certificate = self.pki.client(user, groups)
        return self._kubectl(user, {"client-certificate": str(certificate.cert), "client-key": str(certificate.key)})

    def kubectl_with_token(self, token: str, name: str = "token") -> Kubectl:
        return self._kubectl(name, {"token": token})

    def _kubectl(self, name: str, user: Json) -> Kubectl:
        path = self.root / f"kubeconfig-{name.replace(':', '-')}"
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self.pki.ca.cert)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        return Kubectl(path, self.root)

    def client_tls(self) -> ssl.SSLContext:
        admin = self.pki.client("kubernetes-admin", ("system:masters",))
        context = ssl.create_default_context(cafile=str(self.pki.ca.cert))
        context.load_cert_chain(admin.cert, admin.key)
        return context

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(root: Path, pki: Pki, port: int | None = None) -> Server:
    """Start a server process and wait until it says that it listens."""
    if port is None:
        port = free_port()
    process = subprocess.Popen(
        [
            sys.executable,
            str(SERVER),
            str(root),
            str(port),
            str(pki.server.cert),
            str(pki.server.key),
            str(pki.ca.cert),
        ],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
    assert line == b"ready\n", line
    return Server(port, pki, root, process)


Launch = Callable[[], Server]


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, pki: Pki) -> Iterator[Server]:
    running = launch(tmp_path_factory.mktemp("server"), pki)
    yield running
    running.process.terminate()
    assert running.process.wait(10) == 0


@pytest.fixture(scope="module")
def kubectl(server: Server) -> Kubectl:
    return server.kubectl()


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    name = f"t{time.monotonic_ns()}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")

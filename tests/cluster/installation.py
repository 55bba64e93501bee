"""The product installed on a control plane whose nodes do not run pods: its components are processes of the host.

Objects, rights, webhooks and aggregated APIs are those of deploy/anyvisor-install.yaml. What leads to pods leads to
this host instead: webhooks by URL, and the gateway's Service by an external name. Each component has the token of its
own service account, so that it can do what the manifest allows it and nothing else.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.kit.control_plane import ControlPlane, free_ports

Json = dict[str, Any]
MANIFEST = Path(__file__).parents[2] / "deploy" / "anyvisor-install.yaml"
NAMESPACE = "anyvisor"
GATEWAY = "anyvisor-gateway"
_POD_KINDS = ("DaemonSet", "Deployment")


def documents() -> list[Json]:
    """The objects of the manifest."""
    return [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one]


def account_kubeconfig(plane: ControlPlane, account: str, node: str = "") -> Path:
    """A kubeconfig with a token of a component's service account, bound to a node as an agent's is."""
    words = ["create", "token", f"anyvisor-{account}", "-n", NAMESPACE, "--duration=2h"]
    if node:
        words += ["--bound-object-kind=Node", f"--bound-object-name={node}"]
    config = json.loads(plane.admin.read_text())
    config["users"] = [{"name": "account", "user": {"token": plane.kubectl(*words).strip()}}]
    config["contexts"][0]["context"]["user"] = "account"
    path = plane.place / f"account-{account}-{node}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


class Installation:
    """The installed product."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.port = free_ports(1)[0]

    def install(self, drivers: Sequence[str] = ("qemu", "fake")) -> None:
        """Apply the manifest and start gateway and controller; returns when both work."""
        objects = documents()
        self.plane.apply(*(one for one in objects if one["kind"] in ("CustomResourceDefinition", "Namespace")))
        rest = [self._led_here(one) for one in objects if one["kind"] not in (*_POD_KINDS, "CustomResourceDefinition")]
        self.plane.apply(*rest)
        self.start_gateway()
        self.start_controller(drivers)
        self.plane.wait("controller", self._works)
        self.plane.wait("gateway", self._admits)

    def start_gateway(self, *options: str) -> None:
        """Start the gateway's process and wait for its probe."""
        words = ("gateway", "--address=127.0.0.1", f"--port={self.port}", "--metrics-port=0", *options)
        self.component("gateway", account_kubeconfig(self.plane, "gateway"), *words)
        self.plane.wait("gateway", self._served)

    def start_controller(self, drivers: Sequence[str] = ("qemu", "fake"), name: str = "controller") -> None:
        """Start a controller's process."""
        words = [f"--driver={driver}" for driver in drivers]
        self.component(name, account_kubeconfig(self.plane, "controller"), "controller", "--health-port=0", *words)

    def component(self, name: str, kubeconfig: Path, *words: str, env: Mapping[str, str] | None = None) -> None:
        """Start one of our processes."""
        command = [sys.executable, "-m", "anyvisor.cluster", f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}"]
        self.plane.processes.start(name, [*command, *words], env)

    def _led_here(self, obj: Json) -> Json:
        kind = obj["kind"]
        if kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            for hook in obj["webhooks"]:
                path = hook["clientConfig"].pop("service")["path"]
                hook["clientConfig"]["url"] = f"https://localhost:{self.port}{path}"
        elif kind == "Service":
            spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]}
            obj["spec"] = spec
        elif kind == "APIService":
            obj["spec"]["service"]["port"] = self.port
        return obj

    def _served(self) -> bool:
        words = ["get", "apiservices", "-o", "json"]
        services = json.loads(self.plane.kubectl(*words))["items"]
        ours = [one for one in services if one["spec"].get("service")]
        states = [
            condition["status"]
            for one in ours
            for condition in one.get("status", {}).get("conditions", [])
            if condition["type"] == "Available"
        ]
        return len(states) == len(ours) > 0 and set(states) == {"True"}

    def _admits(self) -> bool:
        """Whether the API server asks our webhooks, which it begins some time after it has stored them."""
        spec: Json = {"domain": {"memory": {"guest": "64Mi"}, "devices": {}}}
        metadata = {"name": "asked-for-nothing", "namespace": "default"}
        machine: Json = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": metadata,
            "spec": {"runStrategy": "Halted", "template": {"spec": spec}},
        }
        words = ["create", "--dry-run=server", "-o", "json", "-f", "-"]
        answer: Json = json.loads(self.plane.kubectl(*words, stdin=json.dumps(machine)))
        return "machine" in answer["spec"]["template"]["spec"]["domain"]

    def _works(self) -> bool:
        found = self.plane.get("kubevirts.kubevirt.io", "kubevirt", NAMESPACE)
        return found.get("status", {}).get("phase") == "Deployed"

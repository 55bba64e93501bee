"""Objects that every instance has: namespaces, the configuration object, and what the installed drivers offer."""

from collections.abc import Sequence
from typing import Any

from anyvisor import __version__
from anyvisor.embedded.apiserver.identity import MASTERS, Identity
from anyvisor.embedded.roles import roles
from anyvisor.embedded.volumes.names import storage_class
from anyvisor.hri.packages import DriverPackage
from anyvisor.kube.client import Client
from anyvisor.kube.errors import NotFound
from anyvisor.kube.resources import CLASSES, DRIVERS, KUBEVIRTS

Json = dict[str, Any]
IDENTITY = Identity("system:anyvisor:bootstrap", (MASTERS,)).with_authenticated()
_MANAGER = "anyvisor"
_NAMESPACE = "kubevirt"
_API_VERSION = "anyvisor.io/v1alpha1"


def objects() -> list[Json]:
    """Objects that the API server makes where they are missing."""
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}},
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": {"name": "kubevirt", "namespace": _NAMESPACE},
            # Bridge, the API's own default, would give the guest the pod's address, which user-mode networking cannot.
            "spec": {"configuration": {"network": {"defaultNetworkInterface": "masquerade"}}},
        },
        storage_class(),
        *roles(),
    ]


def namespace_objects(authority: str) -> list[Json]:
    """Objects that every namespace gets, as clients and charts expect; `authority` is the certificate in PEM."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "kube-root-ca.crt",
                "annotations": {
                    "kubernetes.io/description": "The certificate authority of this API server, to be trusted by pods."
                },
            },
            "data": {"ca.crt": authority},
        },
    ]


async def install(client: Client, packages: Sequence[DriverPackage]) -> None:
    """Bring the objects of the installed drivers up to date, and offer each by a class of its name."""
    await client.patch(
        KUBEVIRTS, "kubevirt", _NAMESPACE, {"status": _deployed()}, subresource="status", field_manager=_MANAGER
    )
    default = _default(packages)
    for package in packages:
        driver = {
            "apiVersion": _API_VERSION,
            "kind": "HypervisorDriver",
            "metadata": {"name": package.manifest["driver"]},
            "spec": package.spec,
        }
        await client.apply(DRIVERS, driver, field_manager=_MANAGER)
        try:
            await client.get(CLASSES, package.name)
        except NotFound:
            spec: Json = {"driver": package.manifest["driver"]}
            if package is default:
                spec["default"] = True
            offered = {
                "apiVersion": _API_VERSION,
                "kind": "HypervisorClass",
                "metadata": {"name": package.name},
                "spec": spec,
            }
            await client.create(CLASSES, offered)


def _default(packages: Sequence[DriverPackage]) -> DriverPackage | None:
    """The driver that states most: whoever names no class gets the one that refuses least."""
    return max(packages, key=lambda package: len(package.manifest["capabilities"]), default=None)


def _deployed() -> Json:
    """What clients look for to learn that the API is served, and by which version."""
    conditions = [("Available", "True"), ("Progressing", "False"), ("Degraded", "False"), ("Created", "True")]
    return {
        "phase": "Deployed",
        "observedKubeVirtVersion": __version__,
        "targetKubeVirtVersion": __version__,
        "operatorVersion": __version__,
        "conditions": [
            {"type": kind, "status": status, "reason": "AllComponentsReady", "message": "All components are ready."}
            for kind, status in conditions
        ],
    }

"""Name, labels and annotations of the launcher pod."""

import json
from typing import Final

from anyvisor.api.meta import Json, annotations, labels, list_at, name, namespace, text_at, uid
from anyvisor.api.names import LABEL_MAX, vmi_id_label
from anyvisor.controller import words
from anyvisor.controller.launch import Launch
from anyvisor.controller.podspec import networks
from anyvisor.controller.settings import Settings

BACKUP_HOOKS: Final = ("pre.hook.backup.velero.io/", "post.hook.backup.velero.io/")
"""Prefixes of the annotations that tell a backup what to run in the pod."""
BRIDGE: Final = "k6t-eth0"
"""The pod's bridge whose traffic a service mesh has to reroute."""
ISTIO_INJECT: Final = "sidecar.istio.io/inject"
NOT_COPIED: Final = ("kubectl.kubernetes.io", words.STORAGE_VERSION, words.LATEST_VERSION)
"""Prefixes of annotations that speak of the instance object itself."""


def hostname(vmi: Json) -> str:
    """The guest's host name: as given, else the instance's name up to its first dot."""
    return text_at(vmi, "spec", "hostname") or name(vmi).split(".")[0][:LABEL_MAX].rstrip("-")


def pod_labels(vmi: Json) -> dict[str, str]:
    """The instance's own labels, and those by which others find its pod."""
    found = {
        **labels(vmi),
        words.DOMAIN_LABEL: words.LAUNCHER,
        words.CREATED_BY_LABEL: uid(vmi),
        words.VM_NAME_LABEL: hostname(vmi),
        words.VMI_ID_LABEL: vmi_id_label(name(vmi)),
    }
    if ISTIO_INJECT in annotations(vmi):
        found[ISTIO_INJECT] = annotations(vmi)[ISTIO_INJECT]
    return found


def pod_annotations(vmi: Json, launch: Launch, settings: Settings) -> dict[str, str]:
    """The instance's annotations, and those that the cluster's other software reads."""
    found = {words.DOMAIN: name(vmi)}
    found |= {key: value for key, value in annotations(vmi).items() if not key.startswith(NOT_COPIED)}
    found |= {
        "kubectl.kubernetes.io/default-container": "compute",
        words.TRANSPORT_UNIX: "true",
        words.EVICT_ONLY: "",
    }
    if settings.gate("VmiMemoryOverheadReport"):
        found[words.MEMORY_OVERHEAD] = str(launch.overhead_bytes)
    if launch.plan:
        found[words.PLAN] = launch.plan
    found |= _network_annotations(vmi, settings)
    found |= backup_hooks(vmi)
    return found


def _network_annotations(vmi: Json, settings: Settings) -> dict[str, str]:
    found: dict[str, str] = {}
    interfaces = [
        one for one in list_at(vmi, "spec", "domain", "devices", "interfaces") if one.get("state") != "absent"
    ]
    present = {one.get("name") for one in interfaces}
    spec_networks = [one for one in list_at(vmi, "spec", "networks") if one.get("name") in present]
    wanted = networks.selection(
        namespace(vmi),
        interfaces,
        spec_networks,
        networks.interface_names(spec_networks, ()),
        settings.network_bindings,
    )
    if wanted:
        found[words.NETWORKS] = wanted
    own = networks.primary(list_at(vmi, "spec", "networks"))
    if own is not None and "multus" in own:
        found[words.DEFAULT_NETWORK] = text_at(own, "multus", "networkName")
    if any("masquerade" in one for one in list_at(vmi, "spec", "domain", "devices", "interfaces")):
        found["traffic.sidecar.istio.io/kubevirtInterfaces"] = BRIDGE
        found["istio.io/reroute-virtual-interfaces"] = BRIDGE
    return found


def backup_hooks(vmi: Json) -> dict[str, str]:
    """Velero freezes the guest's file systems around a backup of its volumes."""
    if annotations(vmi).get(words.SKIP_BACKUP_HOOKS, "").lower() in {"true", "t", "1"}:
        return {}

    def command(verb: str) -> str:
        return json.dumps(["/usr/bin/virt-freezer", verb, "--name", name(vmi), "--namespace", namespace(vmi)])

    return {
        "pre.hook.backup.velero.io/container": "compute",
        "pre.hook.backup.velero.io/command": command("--freeze"),
        "pre.hook.backup.velero.io/timeout": "60s",
        "post.hook.backup.velero.io/container": "compute",
        "post.hook.backup.velero.io/command": command("--unfreeze"),
    }

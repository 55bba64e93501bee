"""Pods that bring hot-plugged volumes to a launcher's node."""

from collections.abc import Mapping, Sequence
from typing import Final

from anyvisor.api.meta import Json, labels, list_at, name, namespace, text_at, uid
from anyvisor.api.names import short_hash, volume_path
from anyvisor.controller import words
from anyvisor.controller.vm.data_volumes import claim_name
from anyvisor.controller.vmi.owner import pod_reference
from anyvisor.controller.vmi.pods import compute_image

PREFIX: Final = "hp-volume"
RESOURCES: Final = {
    "requests": {"cpu": "10m", "memory": "2M"},
    "limits": {"cpu": "100m", "memory": "80M"},
}
PRESSURE_TAINTS: Final = (
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
)
"""The guest runs on that node already, so a volume of it may come there in any state of the node."""


def attachment_pod(vmi: Json, launcher: Json, volumes: Sequence[Json], claims: Mapping[str, Json]) -> Json:
    """The pod that holds all ready hot-plugged volumes on the launcher's node."""
    held = [(str(volume.get("name", "")), claim_name(volume)) for volume in volumes]
    taints = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in PRESSURE_TAINTS]
    known = list_at(launcher, "spec", "tolerations")
    selector = {"key": words.HOSTNAME_LABEL, "operator": "In", "values": [text_at(launcher, "spec", "nodeName")]}
    spec = _spec(launcher, held, claims)
    spec["tolerations"] = [*taints, *(one for one in known if one not in taints)]
    spec["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [selector]}]}
        }
    }
    return _pod(vmi, launcher, held, spec, {})


def population_pod(vmi: Json, launcher: Json, volume: Json, claim: Json) -> Json:
    """A pod that only makes the first consumer of a claim known, so that its importer may begin."""
    held = [(str(volume.get("name", "")), name(claim))]
    spec = _spec(launcher, held, {name(claim): claim})
    spec["tolerations"] = list_at(launcher, "spec", "tolerations")
    term = {"labelSelector": {"matchLabels": labels(launcher)}, "topologyKey": words.HOSTNAME_LABEL}
    spec["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return _pod(vmi, launcher, held, spec, {words.EPHEMERAL_PROVISIONING: "true"})


def _pod(vmi: Json, launcher: Json, held: list[tuple[str, str]], spec: Json, annotations: Json) -> Json:
    key = short_hash(uid(launcher), *annotations, *(part for pair in held for part in pair))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{PREFIX}-{key}",
            "namespace": namespace(vmi),
            "labels": {words.DOMAIN_LABEL: words.HOTPLUG_DISK},
            "annotations": dict(annotations),
            "ownerReferences": [pod_reference(launcher)],
        },
        "spec": spec,
    }


def _spec(launcher: Json, held: list[tuple[str, str]], claims: Mapping[str, Json]) -> Json:
    container: Json = {
        "name": words.HOTPLUG_DISK,
        "image": compute_image(launcher),
        "command": ["/bin/sh", "-c", "exec sleep infinity"],
        "resources": RESOURCES,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "runAsUser": 107,
            "seccompProfile": {"type": "RuntimeDefault"},
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [],
        "volumeDevices": [],
    }
    for volume, claim in held:
        if text_at(claims.get(claim, {}), "spec", "volumeMode") == "Block":
            container["volumeDevices"].append({"name": volume, "devicePath": f"/dev/{volume}"})
        else:
            container["volumeMounts"].append({"name": volume, "mountPath": volume_path(volume)})
    claims_ = [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in held]
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "hotplug-disks", "emptyDir": {}}, *claims_],
    }

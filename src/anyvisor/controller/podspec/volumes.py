"""Volumes of the launcher pod: claims, secrets and images that the guest's disks come from."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.api.names import volume_path
from anyvisor.api.quantity import Quantity
from anyvisor.controller.duplicate import duplicate
from anyvisor.controller.vm.data_volumes import claim_name

RUN: Final = "l"
"""The memory volume with the launcher's sockets and hand-over."""
RUN_PATH: Final = "/run/l"
LOG: Final = "log"
LOG_PATH: Final = "/run/log"
SMALL: Final = "1Mi"
SHARED_MEMORY: Final = "shm"
"""Where a VMM keeps its guest's memory, if it keeps it in files."""
HOTPLUG: Final = "hotplug-disks"
KERNEL_BOOT: Final = "kernel-boot-volume"


class MissingClaimError(Exception):
    """A volume names a claim that does not exist."""


@dataclass(slots=True)
class PodVolumes:
    """Volumes, and how the compute container sees them."""

    volumes: list[Json] = field(default_factory=list[Json])
    mounts: list[Json] = field(default_factory=list[Json])
    devices: list[Json] = field(default_factory=list[Json])

    def mount(self, name: str, source: Json, *, read_only: bool = False) -> None:
        """Add a volume and mount it under its name."""
        self.volumes.append({"name": name, **source})
        mount: Json = {"name": name, "mountPath": volume_path(name)}
        if read_only:
            mount["readOnly"] = True
        self.mounts.append(mount)


def pod_volumes(
    vmi: Json, claims: Mapping[str, Json], state_claim: str, shared_memory: int = 0, *, images: bool = True
) -> PodVolumes:
    """The pod's volumes, with so many bytes at /dev/shm (0 = the runtime's default); raises MissingClaimError.

    Without `images`, the volumes of images are left to whoever copies them.
    """
    found = PodVolumes()
    _own(found, shared_memory)
    left_out = _hotplug_names(vmi)
    for volume in list_at(vmi, "spec", "volumes"):
        if volume.get("name") not in left_out and (images or "containerDisk" not in volume):
            _add(found, volume, claims)
    _add_credentials(found, vmi)
    container = object_at(vmi, "spec", "domain", "firmware", "kernelBoot", "container")
    if container and images:
        found.mount(KERNEL_BOOT, _image(container), read_only=True)
    if state_claim:
        found.mount("vm-state", {"persistentVolumeClaim": {"claimName": state_claim}})
    if "hugepages" in object_at(vmi, "spec", "domain", "memory"):
        found.volumes.append({"name": "hugepages", "emptyDir": {"medium": "HugePages"}})
        found.mounts.append({"name": "hugepages", "mountPath": "/dev/hugepages"})
    devices = object_at(vmi, "spec", "domain", "devices")
    if devices.get("disableHotplug") is not True:
        found.volumes.append({"name": HOTPLUG, "emptyDir": {}})
        mount = {"name": HOTPLUG, "mountPath": "/run/hotplug", "mountPropagation": "HostToContainer"}
        found.mounts.append(mount)
    if any("sriov" in one for one in list_at(devices, "interfaces")):
        found.mount("network-info-annotation", _network_info())
    return found


def _own(found: PodVolumes, shared_memory: int) -> None:
    wanted = [(RUN, RUN_PATH, SMALL), (LOG, LOG_PATH, SMALL)]
    if shared_memory:
        wanted.append((SHARED_MEMORY, "/dev/shm", str(Quantity.of_bytes(shared_memory))))
    for name, path, size in wanted:
        found.volumes.append({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        found.mounts.append({"name": name, "mountPath": path})


def _hotplug_names(vmi: Json) -> set[str]:
    """Volumes that come by an attachment pod."""
    plugged = {
        str(entry.get("name", ""))
        for entry in list_at(vmi, "status", "volumeStatus")
        if entry.get("hotplugVolume") is not None
    }
    pluggable = {
        str(volume.get("name", ""))
        for volume in list_at(vmi, "spec", "volumes")
        for kind in ("dataVolume", "persistentVolumeClaim")
        if object_at(volume, kind).get("hotpluggable") is True
    }
    return plugged | pluggable


def _add(found: PodVolumes, volume: Json, claims: Mapping[str, Json]) -> None:
    name = str(volume.get("name", ""))
    if "persistentVolumeClaim" in volume or "dataVolume" in volume:
        source: Json = {"claimName": claim_name(volume)}
        if object_at(volume, "persistentVolumeClaim").get("readOnly") is True:
            source["readOnly"] = True
        _add_claim(found, name, source, claims)
    elif "ephemeral" in volume:
        _add_claim(found, name, object_at(volume, "ephemeral", "persistentVolumeClaim"), claims)
    elif "hostDisk" in volume:
        found.mount(name, {"hostPath": _host_path(object_at(volume, "hostDisk"))})
    elif "containerDisk" in volume:
        found.mount(name, _image(object_at(volume, "containerDisk")), read_only=True)
    elif "sysprep" in volume:
        _add_sysprep(found, name, object_at(volume, "sysprep"))
    elif "downwardMetrics" in volume:
        found.mount(name, {"emptyDir": {"medium": "Memory", "sizeLimit": SMALL}})
    else:
        _add_configuration(found, name, volume)


def _add_claim(found: PodVolumes, name: str, source: Json, claims: Mapping[str, Json]) -> None:
    wanted = str(source.get("claimName", ""))
    claim = claims.get(wanted)
    if claim is None:
        raise MissingClaimError(f"volume {name!r} names PersistentVolumeClaim {wanted!r}, which does not exist")
    if text_at(claim, "spec", "volumeMode") == "Block":
        found.volumes.append({"name": name, "persistentVolumeClaim": dict(source)})
        found.devices.append({"name": name, "devicePath": f"/dev/{name}"})
    else:
        found.mount(name, {"persistentVolumeClaim": dict(source)})


def _host_path(disk: Json) -> Json:
    kinds = {"Disk": "Directory", "DiskOrCreate": "DirectoryOrCreate"}
    return {"path": posixpath.dirname(text_at(disk, "path")), "type": kinds.get(text_at(disk, "type"), "")}


def _image(source: Json) -> Json:
    image: Json = {"reference": text_at(source, "image")}
    if text_at(source, "imagePullPolicy"):
        image["pullPolicy"] = text_at(source, "imagePullPolicy")
    return {"image": image}


def _add_sysprep(found: PodVolumes, name: str, source: Json) -> None:
    if "configMap" in source:
        found.mount(name, {"configMap": {"name": text_at(source, "configMap", "name")}}, read_only=True)
    elif "secret" in source:
        found.mount(name, {"secret": {"secretName": text_at(source, "secret", "name")}}, read_only=True)


def _add_configuration(found: PodVolumes, name: str, volume: Json) -> None:
    """Disks that are made from objects of the namespace, which the pod projects."""
    if "secret" in volume:
        source = object_at(volume, "secret")
        found.mount(name, {"secret": _kept(source, "secretName", "optional")}, read_only=True)
    elif "configMap" in volume:
        source = object_at(volume, "configMap")
        found.mount(name, {"configMap": _kept(source, "name", "optional")}, read_only=True)
    elif "downwardAPI" in volume:
        items = duplicate(list_at(volume, "downwardAPI", "fields"))
        found.mount(name, {"downwardAPI": {"items": items}}, read_only=True)
    for kind in ("cloudInitNoCloud", "cloudInitConfigDrive"):
        for suffix, key in (("udata", "secretRef"), ("ndata", "networkDataSecretRef")):
            secret = text_at(volume, kind, key, "name")
            if secret:
                found.mount(f"{name}-{suffix}", {"secret": {"secretName": secret}}, read_only=True)


def _kept(source: Json, *keys: str) -> Json:
    return {key: source[key] for key in keys if key in source}


def _add_credentials(found: PodVolumes, vmi: Json) -> None:
    secrets: dict[str, None] = {}
    for credential in list_at(vmi, "spec", "accessCredentials"):
        secret = text_at(credential, "sshPublicKey", "source", "secret", "secretName") or text_at(
            credential, "userPassword", "source", "secret", "secretName"
        )
        if secret:
            secrets[secret] = None
    for secret in secrets:
        found.mount(f"{secret}-access-cred", {"secret": {"secretName": secret}}, read_only=True)


def _network_info() -> Json:
    path = "metadata.annotations['kubevirt.io/network-info']"
    return {"downwardAPI": {"items": [{"path": "network-info", "fieldRef": {"fieldPath": path}}]}}


def pull_secrets(vmi: Json) -> list[Json]:
    """Secrets for the registries of the guest's images, each once."""
    found = [text_at(volume, "containerDisk", "imagePullSecret") for volume in list_at(vmi, "spec", "volumes")]
    kernel = object_at(vmi, "spec", "domain", "firmware", "kernelBoot", "container")
    found.append(text_at(kernel, "imagePullSecret"))
    return [{"name": name} for name in dict.fromkeys(found) if name]

"""Rules for volumes and for how disks, filesystems and volumes belong together."""

import base64
import binascii
import re

from anyvisor.admission import quantity
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.names import SUBDOMAIN_RULE, is_subdomain
from anyvisor.admission.result import NOT_FOUND, Causes
from anyvisor.admission.rules.disks import check_path
from anyvisor.admission.values import Obj, integer, items, mapping, shown, text
from anyvisor.admission.view import Spec

SOURCES = (
    "persistentVolumeClaim",
    "sysprep",
    "cloudInitNoCloud",
    "cloudInitConfigDrive",
    "containerDisk",
    "ephemeral",
    "emptyDisk",
    "hostDisk",
    "dataVolume",
    "configMap",
    "secret",
    "downwardAPI",
    "serviceAccount",
    "downwardMetrics",
    "memoryDump",
    "containerPath",
)
CLOUD_INIT = ("cloudInitNoCloud", "cloudInitConfigDrive")
CLOUD_INIT_MAX = 2048

_SOURCES = frozenset(SOURCES)
_SINGLE = {"serviceAccount": "service account", "downwardMetrics": "downward metrics", "memoryDump": "memory dump"}
_NAMED = {
    "configMap": ("name", "ConfigMap"),
    "secret": ("secretName", "Secret"),
    "serviceAccount": ("serviceAccountName", "ServiceAccount"),
}
_RESERVED_PATHS = ("/var/run/kubevirt", "/var/run/libvirt")
_BASE64_BLANKS = re.compile(r"[\r\n]")
_BASE64_BEGINNING = re.compile(r"[A-Za-z0-9+/]*")


def volumes(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Each volume by itself, and what may exist only once."""
    at = f"{spec.at}.volumes"
    seen: dict[str, int] = {}
    counts = dict.fromkeys(_SINGLE, 0)
    for index, volume in enumerate(spec.volumes):
        where = f"{at}[{index}]"
        name = text(volume.get("name"))
        if name in seen:
            out.invalid(f"{where}.name", f"{where} and {at}[{seen[name]}] have the same name {name!r}; rename one")
        else:
            seen[name] = index
        _source(where, volume, out)
        source = next((kind for kind in CLOUD_INIT if volume.get(kind) is not None), None)
        if source is not None:
            _cloud_init(f"{where}.{source}", mapping(volume[source]), out)
        _gated(where, volume, config, out)
        for source in _SINGLE:
            counts[source] += volume.get(source) is not None
    for source, count in counts.items():
        if count > 1:
            out.invalid(at, f"{at} has {count} {_SINGLE[source]} volumes; only one is possible")


def _source(where: str, volume: Obj, out: Causes) -> None:
    named = [key for key, value in volume.items() if value is not None and key in _SOURCES]
    if len(named) != 1:
        told = f"has {len(named)} sources ({', '.join(sorted(named))})" if named else "has no source"
        out.invalid(where, f"{where} {told}; give exactly one, such as containerDisk or persistentVolumeClaim")
    if volume.get("dataVolume") is not None and not text(mapping(volume["dataVolume"]).get("name")):
        out.required(f"{where}.name", f"{where}.dataVolume.name is missing", f"{where}.dataVolume.name")
    for source, (key, what) in _NAMED.items():
        if volume.get(source) is not None and not text(mapping(volume[source]).get(key)):
            out.invalid(f"{where}.{source}.{key}", f"{where}.{source}.{key} is missing; name the {what}")


def decoded_size(encoded: str) -> tuple[int, bool]:
    """How many bytes the text decodes to, and whether it is valid; of invalid text its valid beginning counts."""
    stripped = _BASE64_BLANKS.sub("", encoded)
    try:
        return len(base64.b64decode(stripped, validate=True)), True
    except (binascii.Error, ValueError):
        valid = _BASE64_BEGINNING.match(stripped)
        return (valid.end() if valid else 0) // 4 * 3, False


def _cloud_init(at: str, source: Obj, out: Causes) -> None:
    given = 0
    for kind, secret in (("userData", "secretRef"), ("networkData", "networkDataSecretRef")):
        plain, encoded = text(source.get(kind)), text(source.get(f"{kind}Base64"))
        count, size = int(bool(text(mapping(source.get(secret)).get("name")))), 0
        if encoded:
            count += 1
            size, valid = decoded_size(encoded)
            if not valid:
                out.invalid(f"{at}.{kind}Base64", f"{at}.{kind}Base64 is not base64; encode it anew, or use {kind}")
        if plain:
            count += 1
            size = len(plain.encode("utf-8", "surrogatepass"))
        if count > 1:
            out.invalid(at, f"{at} has {count} sources of {kind}; keep one of {kind}, {kind}Base64 and {secret}")
        if size > CLOUD_INIT_MAX:
            out.invalid(
                at,
                f"{at}.{kind} has {size} bytes; at most {CLOUD_INIT_MAX} fit into the object: "
                f"put it into a Secret and name that in {secret}",
                f"{at}.{kind}",
            )
        given += count
    if not given:
        out.invalid(at, f"{at} has neither user data nor network data; give one of them or remove the volume")


def _gated(where: str, volume: Obj, config: ClusterConfig, out: Causes) -> None:
    if volume.get("downwardMetrics") is not None and not config.on("DownwardMetrics"):
        out.invalid(where, f"{where}.downwardMetrics needs the feature gate DownwardMetrics; enable it or remove it")
    if volume.get("hostDisk") is None:
        return
    disk, at = mapping(volume["hostDisk"]), f"{where}.hostDisk"
    if not config.on("HostDisk"):
        out.invalid(where, f"{at} needs the feature gate HostDisk, as it opens a path of the node; use a volume claim")
    if not text(disk.get("path")):
        out.add(NOT_FOUND, f"{at}.path", f"{at}.path is missing; name the image file on the node")
    if text(disk.get("type")) not in ("Disk", "DiskOrCreate"):
        out.invalid(f"{at}.type", f"{at}.type is {shown(disk.get('type'))}; use Disk or DiskOrCreate")
    if disk.get("type") == "Disk" and quantity.nanos(disk.get("capacity")):
        out.invalid(f"{at}.capacity", f"{at}.capacity is only for the type DiskOrCreate; an existing disk has its size")


def container_disks(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The path of the disk file inside an image."""
    del config
    for index, volume in enumerate(spec.volumes):
        path = text(mapping(volume.get("containerDisk")).get("path"))
        if path:
            check_path(f"{spec.at}.volumes[{index}].containerDisk", path, out)


def utility_volumes(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Utility volumes are attached to running guests only."""
    del config
    if spec.raw.get("utilityVolumes"):
        at = f"{spec.at}.utilityVolumes"
        out.invalid(at, f"{at} cannot be set at creation: the control plane attaches such volumes to running guests")


def disks_and_volumes(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Each disk needs a volume that suits it; boot orders are unique over disks and interfaces."""
    by_name = {text(volume.get("name")): volume for volume in spec.volumes}
    orders: set[int] = set()
    for index, disk in enumerate(spec.disks):
        where = f"{spec.at}.domain.devices.disks[{index}]"
        name = text(disk.get("name"))
        volume = by_name.get(name)
        if volume is None:
            _disk_without_volume(where, name, disk, config, out)
        else:
            _disk_for(where, disk, volume, out)
        if disk.get("bootOrder") is not None:
            order = integer(disk["bootOrder"])
            if order in orders:
                out.invalid(f"{where}.bootOrder", f"{where}.bootOrder {order} is taken by another device; use another")
            orders.add(order)
    _interface_boot_order(spec, orders, out)


def _disk_without_volume(where: str, name: str, disk: Obj, config: ClusterConfig, out: Causes) -> None:
    if disk.get("cdrom") is None:
        out.invalid(f"{where}.name", f"{where}: there is no volume named {name!r}; add it or correct the name")
    elif not config.on("DeclarativeHotplugVolumes"):
        out.invalid(
            f"{where}.name",
            f"{where}: an empty CD-ROM drive needs the feature gate DeclarativeHotplugVolumes; "
            f"enable it or add a volume named {name!r}",
        )


def _disk_for(where: str, disk: Obj, volume: Obj, out: Causes) -> None:
    claimed = volume.get("persistentVolumeClaim") is not None or volume.get("dataVolume") is not None
    if disk.get("lun") is not None and not claimed:
        out.invalid(f"{where}.lun", f"{where}.lun needs a volume from a persistentVolumeClaim or dataVolume; use disk")
    if volume.get("downwardMetrics") is None:
        return
    if disk.get("disk") is None:
        out.required(f"{where}.disk", f"{where}: downward metrics are shown as a disk; use disk instead")
    elif text(mapping(disk["disk"]).get("bus")) not in ("", "virtio"):
        out.invalid(f"{where}.disk.bus", f"{where}.disk.bus: downward metrics need the virtio bus")


def _interface_boot_order(spec: Spec, orders: set[int], out: Causes) -> None:
    for index, interface in enumerate(spec.interfaces):
        if interface.get("bootOrder") is None:
            continue
        order, where = integer(interface["bootOrder"]), f"{spec.at}.domain.devices.interfaces[{index}].bootOrder"
        if order < 1:
            out.invalid(f"{spec.at}[{index}].bootOrder", f"{where} is {order}; boot orders begin at 1", where)
            continue
        if order in orders:
            out.invalid(where, f"{where} {order} is taken by another device; use another")
        orders.add(order)


def volumes_are_used(spec: Spec, out: Causes) -> None:
    """In a VMI each volume must be shown to the guest, as a disk or a filesystem (a VM's controller adds disks)."""
    disks = {text(disk.get("name")) for disk in spec.disks}
    filesystems = {text(fs.get("name")) for fs in items(spec.devices.get("filesystems"))}
    for index, volume in enumerate(spec.volumes):
        if volume.get("memoryDump") is not None:
            continue
        name = text(volume.get("name"))
        wire, path = f"{spec.at}.domain.volumes[{index}]", f"{spec.at}.volumes[{index}]"
        if name not in disks and name not in filesystems:
            out.invalid(f"{wire}.name", f"{path}: no disk or filesystem is named {name!r}; add one", f"{path}.name")
        if volume.get("containerPath") is None:
            continue
        if name in disks:
            out.invalid(wire, f"{path}: a containerPath is a directory; show it as a filesystem, not as a disk", path)
        if name not in filesystems:
            out.invalid(
                wire, f"{path}: add a filesystem named {name!r} under {spec.at}.domain.devices.filesystems", path
            )
        if text(mapping(volume["containerPath"]).get("path")).startswith(_RESERVED_PATHS):
            out.invalid(
                f"{wire}.containerPath.path",
                f"{path}.containerPath.path is below {' or '.join(_RESERVED_PATHS)}, which are ours; use another",
                f"{path}.containerPath.path",
            )


def filesystems(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """Sharing a claim as a filesystem needs its gate."""
    listed = items(spec.devices.get("filesystems"))
    if not listed or config.on("EnableVirtioFsStorageVolumes"):
        return
    claimed = {
        text(volume.get("name"))
        for volume in spec.volumes
        if volume.get("persistentVolumeClaim") is not None or volume.get("dataVolume") is not None
    }
    for index, fs in enumerate(listed):
        if text(fs.get("name")) in claimed:
            at = f"{spec.at}.domain.devices.filesystems"
            out.invalid(
                at,
                f"{at}[{index}] shares a volume claim, which needs the feature gate EnableVirtioFsStorageVolumes; "
                "enable it or show the volume as a disk",
                f"{at}[{index}]",
            )


def service_account(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """The pod's service account and that of a volume must be the same."""
    del config
    name, at = text(spec.raw.get("serviceAccountName")), f"{spec.at}.serviceAccountName"
    if not name:
        return
    if not is_subdomain(name):
        out.invalid(at, f"{at} is {name!r}, which cannot be a name; it must be {SUBDOMAIN_RULE}")
    for volume in spec.volumes:
        if volume.get("serviceAccount") is None:
            continue
        other = text(mapping(volume["serviceAccount"]).get("serviceAccountName"))
        if other != name:
            out.invalid(at, f"{at} is {name!r}, but a volume is of the service account {other!r}; make them the same")
            break

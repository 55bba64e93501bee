"""What `vm.info` says of a machine. Pure: the VMM's answer is data from outside, so nothing of its form is trusted."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from anyvisor.drivers.cloud_hypervisor.translate import Json, slots
from anyvisor.hri.v1.types_pb2 import DeviceState

_CHECKED: Final = {
    "disks": ("path", "image_type", "readonly", "direct", "num_queues", "serial", "backing_files", "pci_device_id"),
    "cpus": ("boot_vcpus", "max_vcpus"),
    "memory": ("size", "shared", "hugepages", "hotplug_size"),
}
"""Fields that would change what the guest is, or harm an image, if the VMM had not taken them over."""


def _object(value: Any, key: str) -> dict[str, Any]:
    found = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _objects(value: Any, key: str) -> list[dict[str, Any]]:
    found = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    items = cast("list[Any]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def differences(config: Mapping[str, Json], info: Mapping[str, Any]) -> list[str]:
    """Paths of fields that the VMM has otherwise than it was told."""
    has = _object(info, "config")
    return list(_differences(config, has))


def _differences(config: Mapping[str, Json], has: Mapping[str, Any]) -> Iterator[str]:
    for part, names in _CHECKED.items():
        wanted = config.get(part)
        if isinstance(wanted, dict):
            yield from _of_object(part, names, wanted, _object(has, part))
        elif isinstance(wanted, list):
            found = {str(item.get("id")): item for item in _objects(has, part)}
            for item in wanted:
                if isinstance(item, dict):
                    name = str(item.get("id"))
                    yield from _of_object(f"{part}[{name}]", names, item, found.get(name, {}))


def _of_object(path: str, names: tuple[str, ...], wanted: Mapping[str, Json], has: Mapping[str, Any]) -> Iterator[str]:
    for name in names:
        if name in wanted and has.get(name) != wanted[name]:
            yield f"{path}.{name}"


def system_uuid(info: Mapping[str, Any]) -> str:
    """The UUID that the guest sees; empty where none was given."""
    return str(_object(_object(info, "config"), "platform").get("system_uuid", ""))


def disk(info: Mapping[str, Any], device_id: str) -> dict[str, Any]:
    """The config of a disk, empty when there is none."""
    found = [item for item in _objects(_object(info, "config"), "disks") if item.get("id") == device_id]
    return found[0] if found else {}


def has_device(info: Mapping[str, Any], kind: str, device_id: str) -> bool:
    """Whether a device is in the config: `disks` or `net`. One that is being removed is not."""
    return any(item.get("id") == device_id for item in _objects(_object(info, "config"), kind))


def still_plugged(info: Mapping[str, Any], device_id: str) -> bool:
    """Whether the guest has not yet let go of a device."""
    return device_id in _object(info, "device_tree")


def pci_addresses(info: Mapping[str, Any]) -> dict[str, str]:
    """PCI address by device id."""
    found: dict[str, str] = {}
    tree = _object(info, "device_tree")
    for name in tree:
        node = _object(tree, name)
        address = node.get("pci_bdf")
        children = node.get("children")
        if isinstance(address, str) and len(address) <= 16:
            found[name] = address
            for child in cast("list[Any]", children) if isinstance(children, list) else []:
                found[str(child)] = address
    return found


def taken_slots(info: Mapping[str, Any]) -> set[int]:
    """The slots that hold a device, or will again after a reboot."""
    config = _object(info, "config")
    stated = {item.get("pci_device_id") for kind in ("disks", "net") for item in _objects(config, kind)}
    used = {slots.of_address(address) for address in pci_addresses(info).values()}
    return {slot for slot in (*stated, *used) if isinstance(slot, int)}


def vcpus(info: Mapping[str, Any]) -> tuple[int, int]:
    """The wanted number of vCPUs and the most there can be; 0 where unknown."""
    cpus = _object(_object(info, "config"), "cpus")
    now, most = cpus.get("boot_vcpus"), cpus.get("max_vcpus")
    return (now if isinstance(now, int) else 0, most if isinstance(most, int) else 0)


def per_socket(info: Mapping[str, Any]) -> int:
    """vCPUs of one socket."""
    topology = _object(_object(_object(info, "config"), "cpus"), "topology")
    cores, threads = topology.get("cores_per_die"), topology.get("threads_per_core")
    return cores * threads if isinstance(cores, int) and isinstance(threads, int) else 0


def memory(info: Mapping[str, Any]) -> int:
    """The size of the guest's memory, hot-added parts included; 0 where unknown."""
    size = _object(_object(info, "config"), "memory").get("size")
    return size if isinstance(size, int) else 0


def devices(info: Mapping[str, Any]) -> list[DeviceState]:
    """Every device that was named, with its place; one that has left the config waits for the guest."""
    config = _object(info, "config")
    named = [
        *_objects(config, "disks"),
        *_objects(config, "net"),
        *(_object(config, kind) for kind in ("balloon", "rng")),
    ]
    addresses = pci_addresses(info)
    ids = [str(item["id"]) for item in named if isinstance(item.get("id"), str)]
    leaving = [name for name in addresses if not name.startswith("_") and name not in ids]
    found = [DeviceState(id=name, address=addresses.get(name, ""), state=DeviceState.STATE_PLUGGED) for name in ids]
    return found + [
        DeviceState(id=name, address=addresses[name], state=DeviceState.STATE_UNPLUGGING) for name in leaving
    ]

"""The devices of a machine, from `spec.domain.devices`: pure."""

from collections.abc import Mapping
from typing import Any, Final

from anyvisor.agent.translate_parts import TranslateError, only
from anyvisor.agent.volumes.hot import hot_names
from anyvisor.agent.volumes.shares import Share
from anyvisor.api.meta import Json, list_at, object_at
from anyvisor.api.names import short_hash
from anyvisor.hri.v1.machine_spec_pb2 import (
    Balloon,
    BlockSize,
    Console,
    Device,
    Disk,
    Display,
    Filesystem,
    GuestAgentPort,
    Input,
    Panic,
    Rng,
    Sound,
    Tpm,
    UsbRedirection,
    VolumeHandle,
    Vsock,
    Watchdog,
)

CONSOLE_ID: Final = "serial0"
USB_CHANNELS: Final = 4
VSOCK: Final = "device/vsock"
"""Handle of the node's way to sockets in the guest."""
STATISTICS_SECONDS: Final = 10
_ID_MAX: Final = 63

DEVICE_FIELDS: Final = frozenset(
    {
        "autoattachGraphicsDevice",
        "autoattachInputDevice",
        "autoattachMemBalloon",
        "autoattachPodInterface",
        "autoattachSerialConsole",
        "autoattachVSOCK",
        "blockMultiQueue",
        "clientPassthrough",
        "disableHotplug",
        "disks",
        "filesystems",
        "inputs",
        "interfaces",
        "logSerialConsole",
        "networkInterfaceMultiqueue",
        "panicDevices",
        "rng",
        "sound",
        "tpm",
        "video",
        "watchdog",
    }
)
NO_DEVICES: Final = {"useVirtioTransitional": False}
"""Fields that ask for nothing with this value."""
_BUSES: Final = {
    "virtio": Disk.BUS_VIRTIO,
    "sata": Disk.BUS_SATA,
    "scsi": Disk.BUS_SCSI,
    "usb": Disk.BUS_USB,
}
_CACHES: Final = {
    "": Disk.CACHE_UNSPECIFIED,
    "none": Disk.CACHE_NONE,
    "writethrough": Disk.CACHE_WRITETHROUGH,
    "writeback": Disk.CACHE_WRITEBACK,
}
_IO: Final = {"": Disk.IO_UNSPECIFIED, "threads": Disk.IO_THREADS, "native": Disk.IO_NATIVE}
_ON_ERROR: Final = {
    "": Disk.ON_ERROR_UNSPECIFIED,
    "stop": Disk.ON_ERROR_STOP,
    "report": Disk.ON_ERROR_REPORT,
    "ignore": Disk.ON_ERROR_IGNORE,
    "enospace": Disk.ON_ERROR_STOP_WHEN_FULL,
}
_KINDS: Final = {"disk": Disk.KIND_DISK, "cdrom": Disk.KIND_CDROM, "lun": Disk.KIND_LUN}
_DISK_FIELDS: Final = frozenset(
    {
        "blockSize",
        "bootOrder",
        "cache",
        "cdrom",
        "dedicatedIOThread",
        "disk",
        "errorPolicy",
        "io",
        "lun",
        "name",
        "serial",
        "shareable",
        "tag",
    }
)
_TARGET_FIELDS: Final = frozenset({"bus", "pciAddress", "readonly", "tray"})


def disk_id(name: str) -> str:
    """The device id of a disk."""
    return _id("disk", name)


def nic_id(name: str) -> str:
    """The device id of an interface."""
    return _id("nic", name)


def _id(kind: str, name: str) -> str:
    full = f"{kind}.{name}"
    return full if len(full) <= _ID_MAX else f"{full[: _ID_MAX - 9]}.{short_hash(name)}"


def disks(vmi: Json, volumes: Mapping[str, VolumeHandle]) -> list[Disk]:
    """All disks that the guest starts with, in the VMI's order."""
    queues, later = _queues(vmi), hot_names(vmi)
    made = [
        _disk(disk, volumes, queues, at)
        for at, disk in _listed(vmi)
        if disk["name"] not in later or isinstance(disk.get("cdrom"), dict)
    ]
    _spread(object_at(vmi, "spec", "domain"), made, _vcpus(vmi))
    return made


def disk(vmi: Json, name: str, volumes: Mapping[str, VolumeHandle]) -> Disk:
    """One disk that comes while the guest runs. Guests tell such disks apart by their serial number."""
    at, wanted = next((at, each) for at, each in _listed(vmi) if each["name"] == name)
    return _disk({"serial": name, **wanted}, volumes, _queues(vmi), at)


def _listed(vmi: Json) -> list[tuple[str, Json]]:
    listed = list_at(vmi, "spec", "domain", "devices", "disks")
    return [(f"spec.domain.devices.disks[{index}]", each) for index, each in enumerate(listed)]


def _queues(vmi: Json) -> int:
    return _vcpus(vmi) if object_at(vmi, "spec", "domain", "devices").get("blockMultiQueue") else 0


def _spread(domain: Json, made: list[Disk], vcpus: int) -> None:
    """Give disks that have no I/O thread of their own one of those that are shared, in turn."""
    policy = str(domain.get("ioThreadsPolicy") or "")
    dedicated = sum(disk.dedicated_io_thread for disk in made)
    if not policy and not dedicated:
        return
    limit = {"auto": max(2 * vcpus - dedicated, 1), "supplementalPool": _pool(domain)}.get(policy, 1)
    shared = [disk for disk in made if disk.bus == Disk.BUS_VIRTIO and not disk.dedicated_io_thread]
    for index, disk in enumerate(shared):
        disk.io_thread = index % limit + 1


def _pool(domain: Json) -> int:
    return max(int(object_at(domain, "ioThreads").get("supplementalPoolThreadCount") or 1), 1)


def _vcpus(vmi: Json) -> int:
    cpu = object_at(vmi, "spec", "domain", "cpu")
    return int(cpu.get("sockets") or 1) * int(cpu.get("cores") or 1) * int(cpu.get("threads") or 1)


def _disk(disk: Json, volumes: Mapping[str, VolumeHandle], queues: int, at: str) -> Disk:
    only(disk, _DISK_FIELDS, at, ignored={"changedBlockTracking": False})
    name = str(disk["name"])
    kind = next((word for word in _KINDS if isinstance(disk.get(word), dict)), "disk")
    target = object_at(disk, kind)
    only(target, _TARGET_FIELDS, f"{at}.{kind}", ignored={"reservation": False})
    volume = volumes.get(name)
    if volume is None and kind != "cdrom":
        raise TranslateError(f"{at}.name", f"there is no volume {name!r} for this disk")
    bus = _word(_BUSES, str(target.get("bus") or "sata"), f"{at}.{kind}.bus")
    return Disk(
        id=disk_id(name),
        kind=_KINDS[kind],
        bus=bus,
        volume=volume,
        read_only=bool(target.get("readonly", kind == "cdrom")),
        shareable=bool(disk.get("shareable")),
        serial=str(disk.get("serial") or ""),
        cache=_word(_CACHES, str(disk.get("cache") or ""), f"{at}.cache"),
        io=_word(_IO, str(disk.get("io") or ""), f"{at}.io"),
        on_error=_word(_ON_ERROR, str(disk.get("errorPolicy") or ""), f"{at}.errorPolicy"),
        block_size=_block_size(object_at(disk, "blockSize")),
        dedicated_io_thread=bool(disk.get("dedicatedIOThread")),
        pci_address=str(target.get("pciAddress") or ""),
        queues=queues if bus == Disk.BUS_VIRTIO else 0,
        tray_open=target.get("tray") == "open",
    )


def _word(words: Mapping[str, Any], word: str, at: str) -> Any:
    if word not in words:
        raise TranslateError(at, f"{word!r} is not one of {', '.join(w for w in words if w)}")
    return words[word]


def _block_size(size: Json) -> BlockSize | None:
    custom, match = object_at(size, "custom"), object_at(size, "matchVolume")
    if custom:
        return BlockSize(
            logical=int(custom.get("logical") or 0),
            physical=int(custom.get("physical") or 0),
            discard_granularity=int(custom.get("discardGranularity") or 0),
        )
    if isinstance(size.get("matchVolume"), dict) and match.get("enabled") is not False:
        return BlockSize(match_volume=True)
    return None


def consoles(vmi: Json, log_handle: str) -> list[Console]:
    """The serial console, unless the VMI wants none."""
    if object_at(vmi, "spec", "domain", "devices").get("autoattachSerialConsole") is False:
        return []
    return [Console(id=CONSOLE_ID, kind=Console.KIND_SERIAL, log_handle=log_handle)]


def displays(vmi: Json) -> list[Display]:
    """The display, unless the VMI wants none."""
    wanted = object_at(vmi, "spec", "domain", "devices")
    if wanted.get("autoattachGraphicsDevice") is False:
        return []
    return [Display(id="display0", model=str(object_at(wanted, "video").get("type") or ""), heads=1)]


def devices(vmi: Json, *, agent_port: bool, tpm_state: str) -> list[Device]:
    """All devices that are neither disk, NIC, console nor display. `tpm_state`: handle of a TPM's kept state."""
    wanted = object_at(vmi, "spec", "domain", "devices")
    at = "spec.domain.devices"
    result: list[Device] = []
    if agent_port:
        result.append(Device(id="agent.0", guest_agent_port=GuestAgentPort()))
    if wanted.get("autoattachMemBalloon") is not False:
        result.append(Device(id="balloon.0", balloon=Balloon(statistics_seconds=STATISTICS_SECONDS)))
    if isinstance(wanted.get("rng"), dict):
        result.append(Device(id="rng.0", rng=Rng()))
    if isinstance(wanted.get("tpm"), dict):
        result += _tpm(object_at(wanted, "tpm"), tpm_state, f"{at}.tpm")
    if wanted.get("autoattachVSOCK") is True:
        cid = int(object_at(vmi, "status").get("VSOCKCID") or 0)
        result.append(Device(id="vsock.0", vsock=Vsock(cid=cid, handle=VSOCK)))
    if isinstance(wanted.get("watchdog"), dict):
        result.append(_watchdog(object_at(wanted, "watchdog"), f"{at}.watchdog"))
    result += [
        Device(id=f"panic.{i}", panic=Panic(model=str(item.get("model") or "")))
        for i, item in enumerate(list_at(wanted, "panicDevices"))
    ]
    result += [
        Device(
            id=_id("input", str(item["name"])),
            input=Input(type=str(item.get("type") or ""), bus=str(item.get("bus") or "")),
        )
        for item in list_at(wanted, "inputs")
    ]
    if isinstance(wanted.get("sound"), dict):
        sound = object_at(wanted, "sound")
        result.append(Device(id=_id("sound", str(sound["name"])), sound=Sound(model=str(sound.get("model") or ""))))
    if isinstance(wanted.get("clientPassthrough"), dict):
        result.append(Device(id="usb.0", usb_redirection=UsbRedirection(channels=USB_CHANNELS)))
    return result


def filesystems(vmi: Json, shares: Mapping[str, Share]) -> list[Filesystem]:
    """The directories that the guest mounts, each by its volume's name."""
    result: list[Filesystem] = []
    for index, filesystem in enumerate(list_at(vmi, "spec", "domain", "devices", "filesystems")):
        at, name = f"spec.domain.devices.filesystems[{index}]", str(filesystem["name"])
        only(filesystem, {"name", "virtiofs"}, at)
        if name not in shares:
            raise TranslateError(f"{at}.name", f"no volume {name} is there to be shared")
        share = shares[name]
        result.append(
            Filesystem(
                id=_id("fs", name),
                tag=name,
                directory_handle=share.directory,
                namespace_handle=share.namespace,
                read_only=share.read_only,
            )
        )
    return result


def _tpm(tpm: Json, state: str, at: str) -> list[Device]:
    """The newer interface comes with kept state, as in the reference implementation."""
    only(tpm, {"enabled", "persistent"}, at)
    if tpm.get("enabled") is False:
        return []
    return [Device(id="tpm.0", tpm=Tpm(handle=state, model="crb" if state else "tis"))]


def _watchdog(watchdog: Json, at: str) -> Device:
    only(watchdog, {"name", "i6300esb", "diag288"}, at)
    model = "diag288" if isinstance(watchdog.get("diag288"), dict) else "i6300esb"
    action = str(object_at(watchdog, model).get("action") or "reset")
    return Device(id=_id("watchdog", str(watchdog["name"])), watchdog=Watchdog(model=model, action=action))

"""Rules that depend on the guest's architecture, for a VMI (a template is checked when its VMI is made)."""

from anyvisor.admission.config import ARCHITECTURES
from anyvisor.admission.result import Causes
from anyvisor.admission.values import mapping, text
from anyvisor.admission.view import Spec

VIDEO_TYPES = {
    "amd64": ("vga", "cirrus", "virtio", "ramfb", "bochs"),
    "arm64": ("virtio", "ramfb"),
    "s390x": ("virtio",),
}
_WATCHDOGS = {"amd64": ("i6300esb", "diag288"), "s390x": ("diag288", "i6300esb")}
_ARM_BUSES = ("", "virtio", "scsi")


def per_architecture(spec: Spec, out: Causes) -> None:
    """What this architecture's machines have."""
    arch = spec.architecture
    if arch not in ARCHITECTURES:
        at = f"{spec.at}.architecture"
        out.invalid(at, f"{at} is {arch!r}; use one of {', '.join(ARCHITECTURES)}")
        return
    if spec.devices.get("video") is not None:
        type_ = text(mapping(spec.devices["video"]).get("type"))
        if type_ not in VIDEO_TYPES[arch]:
            at = f"{spec.at}.domain.devices.video.type"
            out.unsupported(at, f"{at} is {type_!r}; {arch} has {', '.join(VIDEO_TYPES[arch])}")
    _watchdog(spec, out)
    if arch == "arm64":
        _arm64(spec, out)


def _watchdog(spec: Spec, out: Causes) -> None:
    if spec.devices.get("watchdog") is None:
        return
    at = f"{spec.at}.domain.devices.watchdog"
    if spec.architecture not in _WATCHDOGS:
        out.unsupported(at, f"{at}: there is no watchdog on {spec.architecture}; remove it")
        return
    own, foreign = _WATCHDOGS[spec.architecture]
    watchdog = mapping(spec.devices["watchdog"])
    if watchdog.get(own) is None or watchdog.get(foreign) is not None:
        out.unsupported(at, f"{at}: the watchdog of {spec.architecture} is {own}; use it alone")


def _arm64(spec: Spec, out: Causes) -> None:
    at = f"{spec.at}.domain"
    if mapping(mapping(spec.domain.get("firmware")).get("bootloader")).get("bios") is not None:
        where = f"{at}.firmware.bootloader.bios"
        out.unsupported(where, f"{where}: arm64 machines have no BIOS; use efi")
    model = text(spec.cpu.get("model"))
    if model not in ("", "host-passthrough"):
        out.unsupported(f"{at}.cpu.model", f"{at}.cpu.model is {model!r}; arm64 guests run with host-passthrough only")
    for index, disk in enumerate(spec.disks):
        for kind in ("disk", "cdrom", "lun"):
            bus = text(mapping(disk.get(kind)).get("bus"))
            if bus not in _ARM_BUSES:
                where = f"{at}.devices.disks[{index}].{kind}.bus"
                out.unsupported(where, f"{where} is {bus!r}; arm64 machines have virtio and scsi")
    if spec.devices.get("sound") is not None:
        out.unsupported(f"{at}.devices.sound", f"{at}.devices.sound: there is no sound device on arm64; remove it")

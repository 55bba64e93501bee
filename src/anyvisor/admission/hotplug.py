"""What the control plane may change in the spec of a VMI that exists: CPUs and memory within their limits, volumes.

The causes name no field, as the whole change is what is wrong.
"""

from collections.abc import Iterable

from anyvisor.admission import quantity
from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.result import Causes
from anyvisor.admission.rules.disks import bus
from anyvisor.admission.semantics import equal
from anyvisor.admission.values import Obj, integer, items, mapping, text
from anyvisor.admission.view import Spec

_DISK_BUSES = ("scsi", "virtio")


def check(vmi: Obj, old: Obj, config: ClusterConfig, out: Causes) -> None:
    """The change from `old` to `vmi`; stops at the first part that has causes."""
    new_spec, old_spec = Spec.of(mapping(vmi.get("spec")), "spec"), Spec.of(mapping(old.get("spec")), "spec")
    if integer(new_spec.cpu.get("maxSockets")) != integer(old_spec.cpu.get("maxSockets")):
        out.invalid("", "spec.domain.cpu.maxSockets is fixed once the guest exists", "spec.domain.cpu.maxSockets")
        return
    limits = new_spec.memory.get("maxGuest"), old_spec.memory.get("maxGuest")
    if None not in limits and quantity.nanos(limits[0]) != quantity.nanos(limits[1]):
        out.invalid("", "spec.domain.memory.maxGuest is fixed once the guest exists", "spec.domain.memory.maxGuest")
        return
    statuses = items(mapping(old.get("status")).get("volumeStatus"))
    permanent = {text(status.get("name")) for status in statuses if status.get("hotplugVolume") is None}
    check_utility_volumes(new_spec, old_spec, permanent, config, out)
    if not out:
        _check_storage(vmi, new_spec, old_spec, permanent, config, out)


def check_utility_volumes(new: Spec, old: Spec, permanent: set[str], config: ClusterConfig, out: Causes) -> None:
    """Utility volumes: well formed, attached while running, not changed."""
    listed, at = items(new.raw.get("utilityVolumes")), "spec.utilityVolumes"
    if listed and not config.on("UtilityVolumes"):
        out.invalid(at, f"{at} needs the feature gate UtilityVolumes; enable it")
        return
    names: set[str] = set()
    volumes = {text(volume.get("name")) for volume in new.volumes}
    for index, volume in enumerate(listed):
        name, where = text(volume.get("name")), f"{at}[{index}]"
        if not name:
            out.required(f"{where}.name", f"{where}.name is missing")
        if name in names or name in volumes:
            out.duplicate(f"{where}.name", f"{where}.name {name!r} is taken by another volume")
        names.add(name)
        if not text(volume.get("claimName")):
            out.required(f"{where}.claimName", f"{where}.claimName is missing; name the volume claim")
    if out:
        return
    for name in sorted(names & permanent):
        out.invalid("", f"the utility volume {name} is one that the guest started with; attach another", at)
        return
    before = {text(volume.get("name")): volume for volume in items(old.raw.get("utilityVolumes"))}
    for volume in listed:
        name = text(volume.get("name"))
        if name in before and not equal(volume, before[name]):
            out.invalid("", f"the utility volume {name} cannot be changed while attached; detach it first", at)
            return


def _check_storage(vmi: Obj, new: Spec, old: Spec, permanent: set[str], config: ClusterConfig, out: Causes) -> None:
    if problem := _mismatch(new, config):
        out.invalid("", problem, "spec.volumes")
        return
    moved = {text(v.get("volumeName")) for v in items(mapping(vmi.get("status")).get("migratedVolumes"))}
    disks = [{text(d.get("name")): d for d in spec.disks if text(d.get("name"))} for spec in (new, old)]
    ours, theirs = (_by_name(spec.volumes) for spec in (new, old))
    problem = _permanent_problem(
        {n: v for n, v in ours.items() if n in permanent},
        {n: v for n, v in theirs.items() if n in permanent},
        disks,
        moved,
    )
    if problem:
        out.invalid("", problem, "spec.volumes")
        return
    before = {n: v for n, v in theirs.items() if n not in permanent}
    for name, volume in ours.items():
        if name in permanent:
            continue
        if name in before:
            problem = _kept_problem(name, volume, before[name], disks, moved)
            if problem:
                out.invalid("", problem, "spec.volumes")
        else:
            _check_added(name, volume, disks, out)
        if out:
            return


def _by_name(volumes: Iterable[Obj]) -> dict[str, Obj]:
    return {text(volume.get("name")): volume for volume in volumes}


def _mismatch(spec: Spec, config: ClusterConfig) -> str:
    names = {text(volume.get("name")) for volume in spec.volumes if volume.get("memoryDump") is None}
    needed = len(items(spec.devices.get("filesystems")))
    for disk in spec.disks:
        empty_drive = disk.get("cdrom") is not None and config.on("DeclarativeHotplugVolumes")
        needed += text(disk.get("name")) in names or not empty_drive
    if needed == len(names):
        return ""
    return (
        f"{len(names)} volumes stand against {needed} disks and filesystems; "
        "each volume needs exactly one disk or filesystem of its name"
    )


def _permanent_problem(
    ours: dict[str, Obj], theirs: dict[str, Obj], disks: list[dict[str, Obj]], moved: set[str]
) -> str:
    if len(ours) != len(theirs):
        return "the volumes that the guest started with cannot be added to or removed while it runs"
    for name, volume in ours.items():
        if name not in theirs:
            return f"the volume {name} is not one that the guest started with; those cannot be renamed while it runs"
        if name in moved:
            continue
        if not equal(volume, theirs[name]):
            return f"the volume {name} cannot be changed while the guest runs"
        if not equal(disks[0].get(name), disks[1].get(name)):
            return f"the disk {name} cannot be changed while the guest runs"
    return ""


def _kept_problem(name: str, volume: Obj, before: Obj, disks: list[dict[str, Obj]], moved: set[str]) -> str:
    if name not in moved and not equal(volume, before):
        return f"the volume {name} cannot be changed while attached; detach it first"
    if volume.get("memoryDump") is not None:
        return ""
    if name not in disks[0]:
        return f"the volume {name} has no disk; keep its disk as long as it is attached"
    if not equal(disks[0][name], disks[1].get(name)):
        return f"the disk {name} cannot be changed while attached; detach the volume first"
    return ""


def _check_added(name: str, volume: Obj, disks: list[dict[str, Obj]], out: Causes) -> None:
    if volume.get("memoryDump") is not None:
        return
    if volume.get("dataVolume") is None and volume.get("persistentVolumeClaim") is None:
        out.invalid("", f"the volume {name} cannot be attached while running; use a volume claim or a data volume")
    elif name not in disks[0]:
        out.invalid("", f"the volume {name} has no disk; add one of the same name")
    elif name not in disks[1]:
        check_disk(disks[0][name], name, "", out)


def check_disk(disk: Obj | None, name: str, field: str, out: Causes) -> None:
    """A disk that is attached while the guest runs: a disk or lun, on a bus that can take it."""
    if disk is None:
        out.invalid(field, f"the volume {name} is to be attached without a disk; add a disk of that name")
        return
    named = bus(disk)
    if disk.get("disk") is not None:
        if named not in _DISK_BUSES:
            out.invalid(field, f"the disk {name} is on the bus {named or 'of the default'}; use scsi or virtio")
            return
    elif disk.get("lun") is not None:
        if named != "scsi":
            out.invalid(field, f"the lun {name} is on the bus {named or 'of the default'}; use scsi")
            return
    else:
        out.invalid(field, f"{name} is to be attached while running and must be a disk or a lun")
        return
    if disk.get("dedicatedIOThread") is True and named != "virtio":
        out.invalid(field, f"the disk {name} has an IO thread of its own, which needs the virtio bus")
    elif disk.get("bootOrder") is not None and integer(disk["bootOrder"]) < 1:
        at = "spec.domain.devices.disks[1].bootOrder"
        out.invalid(
            at,
            f"the boot order of the disk {name} is {disk['bootOrder']}; boot orders begin at 1",
            "spec.domain.devices.disks",
        )

"""From a VMI's volumes to descriptors and the chains of layers that a driver is told of."""

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anyvisor.agent.open_error import OpenError
from anyvisor.agent.volumes import hostdisk, hot, media, payloads, qcow2, state
from anyvisor.agent.volumes.context import VolumeContext
from anyvisor.agent.volumes.payloads import Files, PayloadError
from anyvisor.agent.volumes.shares import Share, open_shares, without_disk
from anyvisor.agent.volumes.source import ClaimError, ClaimSource, OpenedClaim
from anyvisor.api.meta import list_at, object_at
from anyvisor.api.names import volume_path
from anyvisor.api.quantity import QuantityError, parse_quantity
from anyvisor.hri.v1.machine_spec_pb2 import Kernel, VolumeHandle

_SECTOR = 512
LESS_SPACE_PERCENT = 10
"""`pvcTolerateLessSpaceUpToPercent` of the KubeVirt configuration, as it is unless somebody sets it."""
_FORMATS = {
    "raw": VolumeHandle.Layer.FORMAT_RAW,
    "qcow2": VolumeHandle.Layer.FORMAT_QCOW2,
}


@dataclass(slots=True)
class VolumeSet:
    """Opened volumes. The descriptors are the set's until `close` or until the caller takes them."""

    handles: dict[str, VolumeHandle] = field(default_factory=dict[str, VolumeHandle])
    kernel: Kernel | None = None
    variables: str = ""
    """Handle of the firmware's kept variables; empty = they are not kept."""
    tpm_state: str = ""
    """Handle of the TPM's kept state; empty = it is not kept."""
    shares: dict[str, Share] = field(default_factory=dict[str, Share])
    """Directories that the guest mounts, by the name of their volume."""
    descriptors: dict[str, int] = field(default_factory=dict[str, int])

    def close(self) -> None:
        """Close every descriptor that was not taken."""
        while self.descriptors:
            os.close(self.descriptors.popitem()[1])


async def open_volumes(vmi: dict[str, Any], context: VolumeContext) -> VolumeSet:
    """Open what the VMI's `spec.volumes` and `kernelBoot` name. Disk work runs in a thread.

    Raises:
        OpenError: with the field, the cause and the next step; nothing stays open.
    """
    volumes = VolumeSet()
    try:
        claims = await _open_claims(vmi, context, volumes)
        await _open_host_disks(vmi, context, volumes)
        carried = await _read_payloads(vmi, context)
        volumes.shares = await open_shares(vmi, context, volumes.descriptors)
        await asyncio.to_thread(_open_all, vmi, context, claims, carried, volumes)
        await _open_state(vmi, context, volumes)
    except BaseException:
        volumes.close()
        raise
    return volumes


async def _open_state(vmi: dict[str, Any], context: VolumeContext, volumes: VolumeSet) -> None:
    """Open what outlives the run besides disks; its claim is the controller's to make."""
    if state.keeps_variables(vmi):
        volumes.variables = _keep(volumes, "state/variables", await state.open_file(vmi, context.claims, "variables"))
    if state.keeps_tpm(vmi):
        volumes.tpm_state = _keep(volumes, "state/tpm", await state.open_file(vmi, context.claims, "tpm"))


def _listed(vmi: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Path, name, kind and source of each volume that the guest starts with as a disk."""
    shared = without_disk(vmi)
    for index, volume in enumerate(vmi["spec"].get("volumes") or []):
        if hot.is_hot(volume) or volume["name"] in shared:
            continue
        at, name = f"spec.volumes[{index}]", str(volume["name"])
        kind = next((kind for kind in (*_OPENERS, *_CLAIM_KINDS, *media.KINDS) if kind in volume), None)
        if kind is None:
            message = f"volume {name} has a source that is not served yet"
            raise OpenError(at, "VolumeNotSupported", message, retry=False)
        yield f"{at}.{kind}", name, kind, volume[kind] or {}


async def _open_claims(vmi: dict[str, Any], context: VolumeContext, volumes: VolumeSet) -> dict[str, OpenedClaim]:
    """The disks of claims by the name of their volume; the set owns the descriptors."""
    opened: dict[str, OpenedClaim] = {}
    for at, name, kind, source in _listed(vmi):
        if kind in _CLAIM_KINDS:
            opened[name] = await _open_source(vmi, at, name, kind, source, context.claims, volumes)
    return opened


async def _open_source(
    vmi: dict[str, Any],
    at: str,
    name: str,
    kind: str,
    source: dict[str, Any],
    claims: ClaimSource,
    volumes: VolumeSet,
) -> OpenedClaim:
    claim = source.get("persistentVolumeClaim") or source
    wanted = str(claim.get("claimName") or claim.get("name") or "")
    read_only = kind == "ephemeral" or bool(claim.get("readOnly"))
    try:
        disk = await claims.open(vmi["metadata"]["namespace"], wanted, read_only=read_only)
    except ClaimError as error:
        raise OpenError(at, error.reason, str(error), retry=error.retry) from error
    volumes.descriptors[f"volume/{name}/base"] = disk.descriptor
    return disk


async def open_claim(
    vmi: dict[str, Any], at: str, volume: dict[str, Any], claims: ClaimSource, volumes: VolumeSet
) -> None:
    """Open a volume that comes while the guest runs, which is a claim's, into the set; raises OpenError."""
    name = str(volume["name"])
    kind = next(each for each in hot.CLAIM_KINDS if each in volume)
    disk = await _open_source(vmi, f"{at}.{kind}", name, kind, volume[kind], claims, volumes)
    volumes.handles[name] = _claim_layers(name, kind, volume[kind], disk)
    if name in _read_only_disks(vmi):
        _make_read_only(volumes, name)


async def _open_host_disks(vmi: dict[str, Any], context: VolumeContext, volumes: VolumeSet) -> None:
    """Files of the host, below the directories that the pod mounts; the set owns the descriptors."""
    for at, name, kind, source in _listed(vmi):
        if kind != "hostDisk":
            continue
        with _reported(at):
            directory = await context.mount(volume_path(name))
            try:
                disk = await asyncio.to_thread(hostdisk.open_disk, source, directory, at, less=LESS_SPACE_PERCENT)
            finally:
                os.close(directory)
            volumes.descriptors[f"volume/{name}"] = disk


async def _read_payloads(vmi: dict[str, Any], context: VolumeContext) -> dict[str, Files]:
    """What the pod carries for the volumes, by its path there."""
    carried: dict[str, Files] = {}
    for path, at in media.needed(vmi).items():
        with _reported(at):
            directory = await context.mount(path)
            try:
                carried[path] = await asyncio.to_thread(payloads.read, directory)
            finally:
                os.close(directory)
    return carried


def _open_all(
    vmi: dict[str, Any],
    context: VolumeContext,
    claims: dict[str, OpenedClaim],
    carried: Mapping[str, Files],
    volumes: VolumeSet,
) -> None:
    unwritten = _read_only_disks(vmi)
    for at, name, kind, source in _listed(vmi):
        with _reported(at):
            if name in claims:
                volumes.handles[name] = _claim(name, kind, source, claims[name], context, volumes)
            elif kind in media.KINDS:
                content = media.image(vmi, {"name": name, kind: source}, kind, at, carried)
                volumes.handles[name] = _medium(name, content, context, volumes)
            else:
                volumes.handles[name] = _OPENERS[kind](vmi, source, name, at, context, volumes)
            if name in unwritten:
                _make_read_only(volumes, name)
    firmware: dict[str, Any] = vmi["spec"]["domain"].get("firmware") or {}
    boot: dict[str, Any] | None = firmware.get("kernelBoot")
    if boot:
        volumes.kernel = _open_kernel(boot, context, volumes)


_Opener = Callable[[dict[str, Any], dict[str, Any], str, str, VolumeContext, VolumeSet], VolumeHandle]


@contextlib.contextmanager
def _reported(where: str) -> Generator[None]:
    try:
        yield
    except qcow2.ImageError as error:
        raise OpenError(where, "ImageNotUsable", str(error), retry=True) from error
    except PayloadError as error:
        raise OpenError(where, "VolumeNotUsable", str(error), retry=False) from error
    except PermissionError as error:
        raise OpenError(where, "VolumeNotReady", str(error.strerror or error), retry=True) from error
    except OSError as error:
        raise OpenError(
            where, "VolumeNotReady", f"{error.strerror or error}; free space or repair the disk", retry=True
        ) from error


def _keep(volumes: VolumeSet, handle: str, descriptor: int) -> str:
    volumes.descriptors[handle] = descriptor
    return handle


def _own_file(context: VolumeContext, name: str, content: bytes, size: int) -> int:
    """Open the machine's own file `name` for writing; at first, make it with `content`, `size` bytes long.

    A new file appears under its name only when it is whole, so a crash never leaves half of it.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=context.directory)
    except FileNotFoundError:
        pass
    fresh = f".{name}.new"
    descriptor = os.open(fresh, flags | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=context.directory)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.ftruncate(descriptor, max(size, len(content)))
        os.fsync(descriptor)
        os.rename(fresh, name, src_dir_fd=context.directory, dst_dir_fd=context.directory)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _overlay(name: str, size: int, context: VolumeContext, volumes: VolumeSet) -> VolumeHandle.Layer:
    """The layer that takes the guest's writes; it lives as long as the VMI."""
    descriptor = _own_file(context, f"{name}.overlay", qcow2.empty(size), 0)
    handle = _keep(volumes, f"volume/{name}/overlay", descriptor)
    return VolumeHandle.Layer(handle=handle, format=VolumeHandle.Layer.FORMAT_QCOW2)


def _container_disk(
    _vmi: dict[str, Any],
    source: dict[str, Any],
    name: str,
    _at: str,
    context: VolumeContext,
    volumes: VolumeSet,
) -> VolumeHandle:
    """The image's disk, never written to, below an overlay that lives as long as the VMI."""
    disk = context.images.open_disk(str(source["image"]), str(source.get("path") or ""))
    base = _keep(volumes, f"volume/{name}/base", disk.descriptor)
    return VolumeHandle(
        layers=[
            _overlay(name, disk.virtual_bytes, context, volumes),
            VolumeHandle.Layer(handle=base, format=_FORMATS[disk.format], read_only=True),
        ],
        size_bytes=disk.virtual_bytes,
    )


def _claim(
    name: str, kind: str, source: dict[str, Any], disk: OpenedClaim, context: VolumeContext, volumes: VolumeSet
) -> VolumeHandle:
    """The claim's disk itself; as `ephemeral` below an overlay, so that it stays as it is."""
    handle = _claim_layers(name, kind, source, disk)
    if kind == "ephemeral":
        handle.layers.insert(0, _overlay(name, disk.virtual_bytes, context, volumes))
    return handle


def _claim_layers(name: str, kind: str, source: dict[str, Any], disk: OpenedClaim) -> VolumeHandle:
    read_only = kind == "ephemeral" or bool(source.get("readOnly"))
    base = VolumeHandle.Layer(
        handle=f"volume/{name}/base",
        format=VolumeHandle.Layer.FORMAT_RAW,
        read_only=read_only,
        block_device=disk.block_device,
    )
    return VolumeHandle(layers=[base], size_bytes=disk.virtual_bytes)


def _read_only_disks(vmi: dict[str, Any]) -> frozenset[str]:
    """The volumes that their guest cannot write to: drives for CDs, and disks that say so."""
    return frozenset(
        str(disk["name"])
        for disk in list_at(vmi, "spec", "domain", "devices", "disks")
        if isinstance(disk.get("cdrom"), dict)
        or any(object_at(disk, kind).get("readonly") is True for kind in ("disk", "lun"))
    )


def _make_read_only(volumes: VolumeSet, name: str) -> None:
    """Open the volume's top again for reading alone: a VMM that may not write gets no descriptor to write by."""
    top = volumes.handles[name].layers[0]
    top.read_only = True
    descriptor = volumes.descriptors[top.handle]
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        volumes.descriptors[top.handle] = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        os.close(descriptor)


def _empty_disk(
    _vmi: dict[str, Any],
    source: dict[str, Any],
    name: str,
    at: str,
    context: VolumeContext,
    volumes: VolumeSet,
) -> VolumeHandle:
    try:
        capacity = parse_quantity(source["capacity"]).value
    except (QuantityError, KeyError) as error:
        raise OpenError(f"{at}.capacity", "VolumeNotReady", f"is no size: {error}", retry=False) from error
    size = -(-capacity // _SECTOR) * _SECTOR
    handle = _keep(volumes, f"volume/{name}", _own_file(context, f"{name}.empty", b"", size))
    layer = VolumeHandle.Layer(handle=handle, format=VolumeHandle.Layer.FORMAT_RAW)
    return VolumeHandle(layers=[layer], size_bytes=size)


def _host_disk(
    _vmi: dict[str, Any],
    source: dict[str, Any],
    name: str,
    _at: str,
    _context: VolumeContext,
    volumes: VolumeSet,
) -> VolumeHandle:
    """The file itself, always raw: what stands inside it is the guest's."""
    handle = f"volume/{name}"
    descriptor = volumes.descriptors[handle]
    block = stat.S_ISBLK(os.fstat(descriptor).st_mode)
    layer = VolumeHandle.Layer(handle=handle, format=VolumeHandle.Layer.FORMAT_RAW, block_device=block)
    return VolumeHandle(layers=[layer], size_bytes=os.lseek(descriptor, 0, os.SEEK_END))


def _medium(name: str, content: bytes, context: VolumeContext, volumes: VolumeSet) -> VolumeHandle:
    """A medium of configuration data; what the guest writes to it is lost with the machine."""
    size = -(-len(content) // _SECTOR) * _SECTOR
    handle = _keep(volumes, f"volume/{name}", _own_file(context, f"{name}.iso", content, size))
    layer = VolumeHandle.Layer(handle=handle, format=VolumeHandle.Layer.FORMAT_RAW, read_only=False)
    return VolumeHandle(layers=[layer], size_bytes=size)


_OPENERS: dict[str, _Opener] = {
    "containerDisk": _container_disk,
    "emptyDisk": _empty_disk,
    "hostDisk": _host_disk,
}
_CLAIM_KINDS = (*hot.CLAIM_KINDS, "ephemeral")


def _open_kernel(boot: dict[str, Any], context: VolumeContext, volumes: VolumeSet) -> Kernel:
    container: dict[str, Any] = boot.get("container") or {}
    kernel = Kernel(command_line=str(boot.get("kernelArgs") or ""))
    at = "spec.domain.firmware.kernelBoot.container"
    image = str(container.get("image") or "")
    with _reported(at):
        if path := container.get("kernelPath"):
            kernel.kernel_handle = _keep(volumes, "boot/kernel", context.images.open_file(image, str(path)))
        if path := container.get("initrdPath"):
            kernel.initrd_handle = _keep(volumes, "boot/initrd", context.images.open_file(image, str(path)))
    return kernel

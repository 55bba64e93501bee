"""Disks as the launcher pod has them: image volumes and claims, opened below the pod's own root, never by a host path.

What lies in them is a tenant's: no link is followed, and an image's format is told by looking, before it is used.
"""

import asyncio
import os
import socket
import stat
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from anyvisor.agent import linux
from anyvisor.agent.volumes import qcow2
from anyvisor.agent.volumes.source import ClaimError, OpenedClaim, OpenedDisk
from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.api.quantity import parse_quantity
from anyvisor.cluster import opener
from anyvisor.cluster.launchers import COMPUTE
from anyvisor.cluster.pods import ContainerProcess, NodePods

DATA: Final = "/run/volumes"
KERNEL_BOOT: Final = "kernel-boot-volume"
ATTACHMENT: Final = "hotplug-disk"
OPENER_SECONDS: Final = 60.0
CLAIM_DISK: Final = "disk.img"
_QCOW2_MAGIC: Final = b"QFI\xfb"
_SECTOR: Final = 512
_MIB: Final = 1 << 20
_FILE_SYSTEM_SHARE: Final = 0.1
"""Of a claim, taken by its own file system's tables; KubeVirt tolerates as much."""
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The volumes of one machine; implements `ImageSource` and `ClaimSource` of `agent.volumes.source`."""

    vmi: Json
    pod_uid: str
    pods: NodePods
    loop: asyncio.AbstractEventLoop

    def open_disk(self, reference: str, path: str) -> OpenedDisk:
        """The image's disk at `path`, or the only file below its /disk. Called in a thread."""
        volume = self._image_volume(reference, path)
        with self._process() as process:
            place = f"{DATA}/{volume}"
            file = path.strip("/") or _only_disk(process, place, reference)
            descriptor = _open_regular(process, f"{place}/{file}", reference)
        try:
            return _look_at(descriptor, reference)
        except BaseException:
            os.close(descriptor)
            raise

    def digest(self, reference: str) -> str:
        """Unknown: the kubelet does not tell what an image volume's name stands for."""
        raise qcow2.ImageError(f"the digest of image {reference} is known to the node's container runtime only")

    def open_file(self, reference: str, path: str) -> int:
        """The image's file at `path`. Called in a thread."""
        with self._process() as process:
            return _open_regular(process, f"{DATA}/{KERNEL_BOOT}/{path.strip('/')}", reference)

    async def open(self, namespace: str, claim: str, *, read_only: bool) -> OpenedClaim:
        """The claim's disk: its block device, or `disk.img` on its file system, made at first."""
        volume = self._claim_volume(claim)
        pod_uid, container = holder(self.vmi, volume, self.pod_uid)
        process = await self.pods.process(pod_uid, container)
        if process is None:
            raise ClaimError("VolumeNotReady", f"claim {namespace}/{claim}: the pod that brings it does not run")
        try:
            return await asyncio.to_thread(
                _open_claim, process, volume, claim, read_only, claimed_bytes(self.vmi, volume)
            )
        finally:
            process.close()

    async def open_state(self, namespace: str, claim: str, file: str) -> int:
        """A file of the claim for writing, empty at first."""
        process = await self.pods.process(self.pod_uid, COMPUTE)
        if process is None:
            raise ClaimError("VolumeNotReady", f"claim {namespace}/{claim}: the launcher pod does not run")
        try:
            place = process.open_directory(f"{DATA}/vm-state")
            try:
                return linux.openat2(place, file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            finally:
                os.close(place)
        except OSError as error:
            message = f"{file} of claim {namespace}/{claim} cannot be opened: {error.strerror}"
            raise ClaimError("VolumeNotReady", message) from error
        finally:
            process.close()

    async def open_directory(self, namespace: str, claim: str) -> int:
        """The claim's file system, as the launcher pod has it."""
        process = await self.pods.process(self.pod_uid, COMPUTE)
        if process is None:
            raise ClaimError("VolumeNotReady", f"claim {namespace}/{claim}: the launcher pod does not run")
        try:
            return process.open_directory(f"{DATA}/{self._claim_volume(claim)}")
        except OSError as error:
            message = f"claim {namespace}/{claim} has no directory ({error.strerror}): its mode must be Filesystem"
            raise ClaimError("VolumeNotReady", message) from error
        finally:
            process.close()

    def _process(self) -> "_Held":
        found = asyncio.run_coroutine_threadsafe(self.pods.process(self.pod_uid, COMPUTE), self.loop).result()
        if found is None:
            raise qcow2.ImageError("the launcher pod does not run, so its images cannot be opened")
        return _Held(found)

    def _image_volume(self, reference: str, path: str) -> str:
        for volume in list_at(self.vmi, "spec", "volumes"):
            source = object_at(volume, "containerDisk")
            if text_at(source, "image") == reference and text_at(source, "path") == path:
                return text_at(volume, "name")
        raise qcow2.ImageError(f"no volume of the pod is of image {reference}")

    def _claim_volume(self, claim: str) -> str:
        for volume in list_at(self.vmi, "spec", "volumes"):
            for at in (("persistentVolumeClaim",), ("ephemeral", "persistentVolumeClaim")):
                if text_at(volume, *at, "claimName") == claim:
                    return text_at(volume, "name")
            if text_at(volume, "dataVolume", "name") == claim:
                return text_at(volume, "name")
        raise ClaimError("VolumeNotReady", f"no volume of the pod is of claim {claim}", retry=False)


class _Held:
    """A container's process for the time of a block."""

    def __init__(self, process: ContainerProcess) -> None:
        self._process = process

    def __enter__(self) -> ContainerProcess:
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.close()


def _only_disk(process: ContainerProcess, place: str, reference: str) -> str:
    try:
        directory = process.open_directory(f"{place}/disk")
    except OSError as error:
        raise qcow2.ImageError(f"image {reference} has no directory /disk: {error.strerror}") from error
    try:
        names = [name for name in os.listdir(directory) if not name.startswith(".")]
    finally:
        os.close(directory)
    if len(names) != 1:
        raise qcow2.ImageError(f"image {reference} must hold one file below /disk (it has: {', '.join(names[:8])})")
    return f"disk/{names[0]}"


def _open_beneath(process: ContainerProcess, path: str, flags: int) -> int:
    parent, _, name = path.rpartition("/")
    directory = process.open_directory(parent)
    try:
        return linux.openat2(directory, name, flags)
    finally:
        os.close(directory)


def _open_regular(process: ContainerProcess, path: str, reference: str) -> int:
    try:
        descriptor = _open_beneath(process, path, _READ)
    except OSError as error:
        shown = path.removeprefix(f"{DATA}/").partition("/")[2]
        raise qcow2.ImageError(f"image {reference}: /{shown} cannot be opened: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise qcow2.ImageError(f"image {reference}: {path} is no file")
    return descriptor


def _look_at(descriptor: int, reference: str) -> OpenedDisk:
    size = os.fstat(descriptor).st_size
    if os.pread(descriptor, 4, 0) == _QCOW2_MAGIC:
        found = qcow2.inspect(lambda offset, length: os.pread(descriptor, length, offset), size)
        return OpenedDisk(descriptor, "qcow2", found.virtual_bytes)
    if size % _SECTOR:
        raise qcow2.ImageError(f"the disk of image {reference} is neither qcow2 nor a raw disk of whole sectors")
    return OpenedDisk(descriptor, "raw", size)


def holder(vmi: Json, volume: str, launcher: str) -> tuple[str, str]:
    """The pod and its container that have the volume: the launcher's own, or that which brought it while it ran."""
    for entry in list_at(vmi, "status", "volumeStatus"):
        attachment = text_at(entry, "hotplugVolume", "attachPodUID")
        if entry.get("name") == volume and attachment:
            return attachment, ATTACHMENT
    return launcher, COMPUTE


def claimed_bytes(vmi: Json, volume: str) -> int:
    """What the volume's claim asks for, as the controller tells it in the status; 0 when it does not."""
    for entry in list_at(vmi, "status", "volumeStatus"):
        info = object_at(entry, "persistentVolumeClaimInfo")
        for amounts in (object_at(info, "requests"), object_at(info, "capacity")):
            if entry.get("name") == volume and amounts.get("storage"):
                return parse_quantity(amounts["storage"]).value
    return 0


def disk_bytes(claim: str, claimed: int, free: int) -> int:
    """How large a claim's new disk is: what was asked for, in whole MiB, or a little less where that is not free.

    Raises:
        ClaimError: the file system is smaller than the claim by more than such a system itself takes.
    """
    wanted = (claimed or free) // _MIB * _MIB
    size = min(wanted, free // _MIB * _MIB)
    if size and size >= wanted * (1 - _FILE_SYSTEM_SHARE):
        return size
    message = f"claim {claim} asks for {wanted} bytes, and its file system has {free} free; free space, or claim less"
    raise ClaimError("VolumeNotReady", message)


def _open_claim(process: ContainerProcess, volume: str, claim: str, read_only: bool, claimed: int) -> OpenedClaim:
    flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
    try:
        try:
            inode = process.open_inode(f"/dev/{volume}")
        except FileNotFoundError:
            return _open_disk_file(process, volume, flags, claim, claimed)
        try:
            if not stat.S_ISBLK(os.fstat(inode).st_mode):
                raise ClaimError("VolumeNotReady", f"claim {claim} is no block device in the launcher pod")
            device = open_device(process.pid, inode, flags)
        finally:
            os.close(inode)
        return OpenedClaim(device, os.lseek(device, 0, os.SEEK_END), block_device=True)
    except OSError as error:
        message = f"the disk of claim {claim} cannot be opened: {error.strerror}; free space or repair it"
        raise ClaimError("VolumeNotReady", message) from error


def open_device(pid: int, inode: int, flags: int) -> int:
    """Open a device that the container of a process was given; see `opener`. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        words = [str(number) for number in (pid, theirs.fileno(), inode, flags)]
        done = subprocess.run(
            [sys.executable, "-I", "-S", opener.__file__, *words],
            pass_fds=(theirs.fileno(), inode),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=OPENER_SECONDS,
            check=False,
        )
        if done.returncode:
            raise OSError(done.returncode, done.stderr.decode(errors="replace")[:1024])
        _, descriptors, _, _ = socket.recv_fds(ours, 64, 1, socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC)
        return descriptors[0]


def _open_disk_file(process: ContainerProcess, volume: str, flags: int, claim: str, claimed: int) -> OpenedClaim:
    place = process.open_directory(f"{DATA}/{volume}")
    try:
        try:
            descriptor = linux.openat2(place, CLAIM_DISK, flags)
        except FileNotFoundError as error:
            if flags & os.O_ACCMODE == os.O_RDONLY:
                message = f"claim {claim} has no {CLAIM_DISK}, and is to be read only"
                raise ClaimError("VolumeNotReady", message, retry=False) from error
            descriptor = _make_disk(place, process, claim, claimed)
    finally:
        os.close(place)
    return OpenedClaim(descriptor, os.fstat(descriptor).st_size)


def _make_disk(place: int, process: ContainerProcess, claim: str, claimed: int) -> int:
    """A sparse disk; it appears under its name only when it is whole."""
    found = os.fstatvfs(place)
    size = disk_bytes(claim, claimed, found.f_bavail * found.f_frsize)
    fresh = f".{CLAIM_DISK}"
    descriptor = linux.openat2(place, fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o660)
    try:
        user, group = process.owner()
        os.fchown(descriptor, user, group)
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
        os.rename(fresh, CLAIM_DISK, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor

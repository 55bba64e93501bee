"""From a VMI's volumes to descriptors."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anyvisor.agent.open_error import OpenError
from anyvisor.agent.volumes import qcow2
from anyvisor.agent.volumes.open import VolumeContext, VolumeSet, open_volumes
from anyvisor.agent.volumes.source import ClaimError, OpenedClaim
from anyvisor.embedded.images.source import StoreSource
from anyvisor.embedded.images.store import ImageStore
from anyvisor.hri.v1.machine_spec_pb2 import VolumeHandle

DISK = b"disk".ljust(4096, b"\1")


@dataclass(frozen=True)
class Claims:
    """Claims as files of one directory."""

    place: Path

    async def open(self, namespace: str, claim: str, *, read_only: bool) -> OpenedClaim:
        try:
            handle = os.open(self.place / f"{namespace}-{claim}", os.O_RDONLY if read_only else os.O_RDWR)
        except FileNotFoundError as error:
            raise ClaimError("FailedPvcNotFound", f"there is no claim {claim}") from error
        return OpenedClaim(handle, os.fstat(handle).st_size)

    async def open_state(self, namespace: str, claim: str, file: str) -> int:
        return os.open(self.place / f"{namespace}-{claim}-{file}", os.O_RDWR | os.O_CREAT, 0o600)


@dataclass(frozen=True)
class World:
    context: VolumeContext
    directory: Path
    store: ImageStore


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    directory = tmp_path / "machine"
    directory.mkdir()
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    store = ImageStore(tmp_path / "images")
    (tmp_path / "disk.img").write_bytes(DISK)
    store.import_file(tmp_path / "disk.img", "demo")
    yield World(VolumeContext(StoreSource(store), Claims(tmp_path), handle), directory, store)
    os.close(handle)


def vmi(*volumes: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "uid": "u-1", "namespace": "ns"},
        "spec": {"domain": extra, "volumes": list(volumes)},
    }


async def opened(world: World, obj: dict[str, Any]) -> VolumeSet:
    return await open_volumes(obj, world.context)


async def test_a_container_disk_is_an_overlay_over_the_shared_image(world: World) -> None:
    volumes = await opened(world, vmi({"name": "root", "containerDisk": {"image": "demo"}}))
    handle = volumes.handles["root"]
    assert [layer.format for layer in handle.layers] == [
        VolumeHandle.Layer.FORMAT_QCOW2,
        VolumeHandle.Layer.FORMAT_RAW,
    ]
    assert [layer.read_only for layer in handle.layers] == [False, True]
    assert handle.size_bytes == len(DISK)
    base = volumes.descriptors[handle.layers[1].handle]
    assert os.pread(base, 4, 0) == b"disk"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(base, b"x", 0)
    volumes.close()
    assert volumes.descriptors == {}


async def test_what_a_guest_wrote_is_still_there_when_opened_again(world: World) -> None:
    obj = vmi({"name": "data", "emptyDisk": {"capacity": "1M"}})
    volumes = await opened(world, obj)
    os.pwrite(volumes.descriptors["volume/data"], b"kept", 0)
    volumes.close()
    again = await opened(world, obj)
    assert os.pread(again.descriptors["volume/data"], 4, 0) == b"kept"
    assert again.handles["data"].size_bytes == 1_000_448
    again.close()


async def test_a_half_written_file_of_a_crash_is_not_taken_for_whole(world: World) -> None:
    (world.directory / ".root.overlay.new").write_bytes(b"half")
    volumes = await opened(world, vmi({"name": "root", "containerDisk": {"image": "demo"}}))
    overlay = volumes.descriptors["volume/root/overlay"]
    info = qcow2.inspect(lambda offset, size: os.pread(overlay, size, offset), os.fstat(overlay).st_size)
    assert info.virtual_bytes == len(DISK)
    volumes.close()


async def test_a_planted_link_is_not_followed(world: World, tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_bytes(b"secret")
    (world.directory / "data.empty").symlink_to(target)
    with pytest.raises(OpenError) as caught:
        await opened(world, vmi({"name": "data", "emptyDisk": {"capacity": "1Mi"}}))
    assert caught.value.field == "spec.volumes[0].emptyDisk"
    assert target.read_bytes() == b"secret"


async def test_an_unknown_image_names_the_field_and_the_next_step(world: World) -> None:
    before = len(os.listdir("/proc/self/fd"))
    obj = vmi({"name": "d", "emptyDisk": {"capacity": "1Mi"}}, {"name": "r", "containerDisk": {"image": "nothing"}})
    with pytest.raises(OpenError, match="anyvisor image import") as caught:
        await opened(world, obj)
    assert (caught.value.field, caught.value.retry) == ("spec.volumes[1].containerDisk", True)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_source_that_is_not_served_is_refused(world: World) -> None:
    with pytest.raises(OpenError, match="not served") as caught:
        await opened(world, vmi({"name": "x", "hostDisk": {"path": "/etc/passwd"}}))
    assert not caught.value.retry


async def test_a_kernel_comes_out_of_its_image(world: World, tmp_path: Path) -> None:
    import tarfile

    (tmp_path / "vmlinuz").write_bytes(b"kernel")
    with tarfile.open(tmp_path / "k.tar", "w") as tar:
        tar.add(tmp_path / "vmlinuz", "boot/vmlinuz")
    world.store.import_file(tmp_path / "k.tar", "kernel")
    boot = {"kernelArgs": "quiet", "container": {"image": "kernel", "kernelPath": "/boot/vmlinuz"}}
    volumes = await opened(world, vmi(firmware={"kernelBoot": boot}))
    assert volumes.kernel is not None
    assert (volumes.kernel.command_line, volumes.kernel.initrd_handle) == ("quiet", "")
    assert os.pread(volumes.descriptors[volumes.kernel.kernel_handle], 6, 0) == b"kernel"
    volumes.close()


def claim(name: str = "data", **more: Any) -> dict[str, Any]:
    return {"name": "d", "persistentVolumeClaim": {"claimName": name, **more}}


async def test_a_claim_is_the_disk_itself(world: World, tmp_path: Path) -> None:
    (tmp_path / "ns-data").write_bytes(DISK)
    volumes = await opened(world, vmi(claim()))
    os.pwrite(volumes.descriptors["volume/d/base"], b"kept", 0)
    volumes.close()
    assert (tmp_path / "ns-data").read_bytes()[:4] == b"kept"


async def test_a_claim_below_an_ephemeral_volume_stays_as_it_is(world: World, tmp_path: Path) -> None:
    (tmp_path / "ns-data").write_bytes(DISK)
    source = {"name": "d", "ephemeral": {"persistentVolumeClaim": {"claimName": "data"}}}
    volumes = await opened(world, vmi(source))
    assert [layer.read_only for layer in volumes.handles["d"].layers] == [False, True]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(volumes.descriptors["volume/d/base"], b"x", 0)
    volumes.close()


async def test_a_claim_that_is_not_there_leaves_nothing_open(world: World) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OpenError) as caught:
        await opened(world, vmi({"name": "e", "emptyDisk": {"capacity": "1Mi"}}, claim("none")))
    assert (caught.value.field, caught.value.reason) == ("spec.volumes[1].persistentVolumeClaim", "FailedPvcNotFound")
    assert len(os.listdir("/proc/self/fd")) == before

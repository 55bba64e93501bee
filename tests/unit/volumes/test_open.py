"""From a VMI's volumes to descriptors."""

import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pycdlib
import pytest

from anyvisor.agent.launchers import SharedDirectory
from anyvisor.agent.open_error import OpenError
from anyvisor.agent.volumes import qcow2
from anyvisor.agent.volumes.context import VolumeContext
from anyvisor.agent.volumes.open import VolumeSet, open_volumes
from anyvisor.agent.volumes.source import ClaimError, OpenedClaim
from anyvisor.embedded.images.source import StoreSource
from anyvisor.embedded.images.store import ImageStore
from anyvisor.embedded.podrunner import mounts
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

    async def open_directory(self, namespace: str, claim: str) -> int:
        place = self.place / f"{namespace}-{claim}.d"
        place.mkdir(exist_ok=True)
        return os.open(place, os.O_RDONLY | os.O_DIRECTORY)


@dataclass(frozen=True)
class Pod:
    """What the launcher pod has mounted: directories below one, by their path in the pod."""

    root: Path

    async def __call__(self, path: str) -> int:
        return os.open(self.root / path.lstrip("/"), os.O_RDONLY | os.O_DIRECTORY)

    def put(self, path: str, **files: bytes) -> None:
        mounts.write(self.root, {path: files})


async def share(directory: int, *, read_only: bool) -> SharedDirectory:
    """As for a pod whose user may use what it has mounted, but for what is to be read only where that cannot be."""
    if read_only and os.environ.get("NO_READ_ONLY_SHARES"):
        raise OSError(30, "Read-only file system")
    return SharedDirectory(os.dup(directory), os.open("/proc/self/ns/user", os.O_RDONLY))


@dataclass(frozen=True)
class World:
    pod: Pod
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
    pod = Pod(tmp_path / "pod")
    yield World(pod, VolumeContext(StoreSource(store), Claims(tmp_path), handle, pod, share), directory, store)
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
        await opened(world, vmi({"name": "x", "downwardMetrics": {}}))
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


def files_of(volumes: VolumeSet, name: str) -> dict[str, bytes]:
    """The files on the medium of a volume, by their Joliet names, and its label by ``."""
    size = volumes.handles[name].size_bytes
    content = os.pread(volumes.descriptors[f"volume/{name}"], size, 0)
    medium = pycdlib.PyCdlib()
    medium.open_fp(io.BytesIO(content))
    found: dict[str, bytes] = {"": content[32808:32840].rstrip()}
    walk: Iterator[tuple[str, list[str], list[str]]] = getattr(medium, "walk")(joliet_path="/")  # noqa: B009 - untyped
    for place, _, names in walk:
        for each in names:
            out = io.BytesIO()
            path = f"{place.rstrip('/')}/{each}"
            medium.get_file_from_iso_fp(out, joliet_path=path)
            found[path.lstrip("/")] = out.getvalue()
    medium.close()
    return found


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"configMap": {"name": "c", "volumeLabel": "mine"}}, "/run/volumes/d"),
        ({"secret": {"secretName": "c", "volumeLabel": "mine"}}, "/run/volumes/d"),
        ({"downwardAPI": {"fields": [], "volumeLabel": "mine"}}, "/run/volumes/d"),
    ],
)
async def test_what_the_pod_carries_becomes_a_medium(world: World, source: dict[str, Any], path: str) -> None:
    world.pod.put(path, one=b"1", two=b"2")
    volumes = await opened(world, vmi({"name": "d", **source}))
    assert files_of(volumes, "d") == {"": b"mine", "one": b"1", "two": b"2"}
    volumes.close()


async def test_a_service_account_is_where_every_container_has_it(world: World) -> None:
    world.pod.put("/var/run/secrets/kubernetes.io/serviceaccount", token=b"t", namespace=b"ns")
    volumes = await opened(world, vmi({"name": "d", "serviceAccount": {"serviceAccountName": "a"}}))
    assert files_of(volumes, "d") == {"": b"cfgdata", "token": b"t", "namespace": b"ns"}
    volumes.close()


async def test_windows_finds_its_answer_file(world: World) -> None:
    world.pod.put("/run/volumes/d", **{"Autounattend.xml": b"<unattend/>"})
    volumes = await opened(world, vmi({"name": "d", "sysprep": {"configMap": {"name": "w"}}}))
    assert files_of(volumes, "d") == {"": b"unattendCD", "Autounattend.xml": b"<unattend/>"}
    volumes.close()


async def test_sysprep_without_an_answer_file_says_what_to_add(world: World) -> None:
    world.pod.put("/run/volumes/d", readme=b"")
    with pytest.raises(OpenError, match=r"configMap 'w' has no key Autounattend.xml") as caught:
        await opened(world, vmi({"name": "d", "sysprep": {"configMap": {"name": "w"}}}))
    assert caught.value.field == "spec.volumes[0].sysprep"


async def test_cloud_init_takes_data_and_keys_from_secrets(world: World) -> None:
    world.pod.put("/run/volumes/d-udata", userdata=b"#cloud-config\n")
    world.pod.put("/run/volumes/d-ndata", networkdata=b"version: 2\n")
    world.pod.put("/run/volumes/keys-access-cred", alice=b"ssh-ed25519 A alice\n")
    source = {"secretRef": {"name": "u"}, "networkDataSecretRef": {"name": "n"}}
    obj = vmi({"name": "d", "cloudInitConfigDrive": source})
    key: dict[str, Any] = {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"configDrive": {}}}
    obj["spec"]["accessCredentials"] = [{"sshPublicKey": key}]
    volumes = await opened(world, obj)
    files = files_of(volumes, "d")
    assert files[""] == b"config-2"
    assert files["openstack/latest/user_data"] == b"#cloud-config\n"
    assert files["openstack/latest/network_data.json"] == b"version: 2\n"
    assert json.loads(files["openstack/latest/meta_data.json"])["public_keys"] == {"0": "ssh-ed25519 A alice"}
    volumes.close()


async def test_a_link_out_of_the_mount_is_not_followed(world: World, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    world.pod.put("/run/volumes/d", one=b"1")
    (world.pod.root / "run/volumes/d/two").symlink_to(tmp_path / "secret")
    with pytest.raises(OpenError) as caught:
        await opened(world, vmi({"name": "d", "configMap": {"name": "c"}}))
    assert caught.value.field == "spec.volumes[0]"


async def test_a_mount_that_is_not_there_leaves_nothing_open(world: World) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OpenError):
        await opened(world, vmi({"name": "e", "emptyDisk": {"capacity": "1Mi"}}, {"name": "d", "secret": {}}))
    assert len(os.listdir("/proc/self/fd")) == before


def host_disk(world: World, **more: Any) -> dict[str, Any]:
    (world.pod.root / "run/volumes/h").mkdir(parents=True, exist_ok=True)
    return {"name": "h", "hostDisk": {"path": "/srv/disks/h.img", "type": "DiskOrCreate", "capacity": "1Mi", **more}}


async def test_a_host_disk_is_made_once_and_kept(world: World) -> None:
    volumes = await opened(world, vmi(host_disk(world)))
    assert volumes.handles["h"].size_bytes == 1 << 20
    os.pwrite(volumes.descriptors["volume/h"], b"kept", 0)
    volumes.close()
    again = await opened(world, vmi(host_disk(world, type="Disk")))
    assert os.pread(again.descriptors["volume/h"], 4, 0) == b"kept"
    again.close()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"type": "Disk"}, "there is no disk /srv/disks/h.img"),
        ({"capacity": "1Ei"}, "only .* bytes of space"),
        ({"path": "/srv/disks/.."}, "names no file"),
    ],
)
async def test_a_host_disk_that_cannot_be_had_says_why(world: World, more: dict[str, Any], words: str) -> None:
    with pytest.raises(OpenError, match=words):
        await opened(world, vmi(host_disk(world, **more)))


@pytest.mark.parametrize("how", ["link", "hard link", "directory"])
async def test_a_host_disk_is_never_something_else_by_its_name(world: World, tmp_path: Path, how: str) -> None:
    disk = host_disk(world)
    place = world.pod.root / "run/volumes/h/h.img"
    (tmp_path / "victim").write_bytes(b"victim")
    if how == "link":
        place.symlink_to(tmp_path / "victim")
    elif how == "hard link":
        place.hardlink_to(tmp_path / "victim")
    else:
        place.mkdir()
    with pytest.raises(OpenError) as caught:
        await opened(world, vmi(disk))
    assert caught.value.field.startswith("spec.volumes[0].hostDisk")
    assert (tmp_path / "victim").read_bytes() == b"victim"


def sharing(*volumes: dict[str, Any], disks: tuple[str, ...] = ()) -> dict[str, Any]:
    """A VMI that mounts all its volumes, and has some of them as disks too."""
    filesystems: list[dict[str, Any]] = [{"name": volume["name"], "virtiofs": {}} for volume in volumes]
    return vmi(*volumes, devices={"filesystems": filesystems, "disks": [{"name": name, "disk": {}} for name in disks]})


async def test_shared_volumes_are_directories_and_no_disks(world: World, tmp_path: Path) -> None:
    world.pod.put("/run/volumes/conf", **{"app.conf": b"answer=42"})
    world.pod.put("/var/run/secrets/kubernetes.io/serviceaccount", token=b"t")
    volumes = await opened(
        world,
        sharing(
            {"name": "data", "persistentVolumeClaim": {"claimName": "files"}},
            {"name": "kept", "persistentVolumeClaim": {"claimName": "files", "readOnly": True}},
            {"name": "conf", "configMap": {"name": "conf"}},
            {"name": "robot", "serviceAccount": {"serviceAccountName": "robot"}},
        ),
    )
    assert volumes.handles == {}
    read_only = {name: share.read_only for name, share in volumes.shares.items()}
    assert read_only == {"data": False, "kept": True, "conf": True, "robot": True}
    place = volumes.descriptors[volumes.shares["data"].directory]
    assert os.path.samestat(os.fstat(place), (tmp_path / "ns-files.d").stat())
    assert "app.conf" in os.listdir(volumes.descriptors[volumes.shares["conf"].directory])
    volumes.close()


async def test_a_volume_can_be_both_disk_and_share(world: World) -> None:
    world.pod.put("/run/volumes/conf", **{"app.conf": b"answer=42"})
    volumes = await opened(world, sharing({"name": "conf", "configMap": {"name": "conf"}}, disks=("conf",)))
    assert list(volumes.handles) == list(volumes.shares) == ["conf"]
    volumes.close()


async def test_what_cannot_be_shared_says_why(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OpenError, match="cannot be shared; use one of persistentVolumeClaim"):
        await opened(world, sharing({"name": "e", "emptyDisk": {"capacity": "1Mi"}}))
    monkeypatch.setenv("NO_READ_ONLY_SHARES", "1")
    world.pod.put("/run/volumes/conf", **{"app.conf": b"answer=42"})
    with pytest.raises(OpenError, match="attach it as a disk") as caught:
        await opened(world, sharing({"name": "conf", "configMap": {"name": "conf"}}))
    assert caught.value.args
    assert caught.value.field == "spec.volumes[0]"

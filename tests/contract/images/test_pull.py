"""Pulls by the real skopeo from a registry on loopback, and the ways in which a registry can fail."""

import base64
import gzip
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.images.credentials import merged
from anyvisor.embedded.images.pull import NeverPullError, Puller
from anyvisor.embedded.images.registry import Limits, PullError, Registry
from anyvisor.embedded.images.store import ImageStore
from tests import registry as served

DISK = b"\0" * 4096 + b"data".ljust(4096, b"\1")
FILES = {"disk/disk.img": DISK}
UNPRIVILEGED = 1_000_000_003

pytestmark = pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")


@pytest.fixture
def remote() -> Iterator[served.Registry]:
    with served.serving() as registry:
        yield registry


@pytest.fixture
def puller(tmp_path: Path, remote: served.Registry) -> Puller:
    served.allow_plain_http(tmp_path, remote)
    user = UNPRIVILEGED if os.geteuid() == 0 else os.geteuid()
    limits = Limits(answer_seconds=20, stall_seconds=2)
    registry = Registry(tmp_path / "pulls", user, tmp_path / "registries.conf", limits)
    return Puller(ImageStore(tmp_path / "images"), registry, lambda: 1 << 40)


@pytest.fixture(autouse=True)
async def nothing_left(tmp_path: Path) -> AsyncIterator[None]:
    yield
    assert list((tmp_path / "pulls").iterdir()) == []
    assert not [path for path in (tmp_path / "images/blobs/sha256").iterdir() if path.name.startswith(".")]


def with_limits(puller: Puller, **limits: float) -> None:
    puller.registry = replace(puller.registry, limits=replace(puller.registry.limits, **limits))


async def test_a_tag_is_pulled_once_and_its_digest_kept(puller: Puller, remote: served.Registry) -> None:
    digest = remote.push("team/demo", FILES, "1", indexed=True)
    name = f"{remote.host}/team/demo:1"
    told: list[tuple[int, int]] = []
    first = await puller.ensure(name, "IfNotPresent", progress=lambda here, total: told.append((here, total)))
    assert first.seconds is not None
    assert (first.image.digest, first.image.origin) == (digest, "registry")
    with os.fdopen(puller.store.open(first.image.disk()), "rb") as disk:
        assert disk.read() == DISK
    assert all(here <= total for here, total in told)
    asked = len(remote.asked)
    again = await puller.ensure(name, "IfNotPresent")
    assert (again.seconds, len(remote.asked)) == (None, asked)


async def test_always_follows_the_tag_and_fetches_nothing_twice(puller: Puller, remote: served.Registry) -> None:
    name = f"{remote.host}/demo:latest"
    remote.push("demo", FILES)
    await puller.ensure(name, "Always")
    remote.asked.clear()
    assert (await puller.ensure(name, "Always")).seconds is None
    assert not [path for path in remote.asked if "/blobs/" in path]
    moved = remote.push("demo", {"disk/disk.img": DISK + b"\2" * 512})
    after = await puller.ensure(name, "Always")
    assert after.seconds is not None
    assert after.image.digest == moved


async def test_a_digest_needs_no_registry_when_it_is_here(puller: Puller, remote: served.Registry) -> None:
    name = f"{remote.host}/demo@{remote.push('demo', FILES)}"
    await puller.ensure(name, "Always")
    remote.asked.clear()
    assert (await puller.ensure(name, "Always")).seconds is None
    assert remote.asked == []


async def test_never_means_never(puller: Puller, remote: served.Registry) -> None:
    remote.push("demo", FILES)
    (puller.registry.directory).mkdir()
    with pytest.raises(NeverPullError, match="policy is Never"):
        await puller.ensure(f"{remote.host}/demo", "Never")
    assert remote.asked == []


async def test_a_login_comes_from_a_pull_secret(puller: Puller, remote: served.Registry) -> None:
    remote.push("demo", FILES)
    remote.login = "ada:secret"
    name = f"{remote.host}/demo"
    with pytest.raises(PullError, match=r"(?i)auth"):
        await puller.ensure(name, "Always")
    auths = {"auths": {f"http://{remote.host}": {"auth": base64.b64encode(b"ada:secret").decode()}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
    secret = {"metadata": {"name": "s"}, "type": "kubernetes.io/dockerconfigjson", "data": data}
    assert (await puller.ensure(name, "Always", merged([secret]))).seconds is not None


async def test_a_registry_that_hangs(puller: Puller, remote: served.Registry) -> None:
    remote.push("demo", FILES)
    remote.hangs_at = "manifest"
    with_limits(puller, answer_seconds=1.5)
    with pytest.raises(PullError, match="does not answer within"):
        await puller.ensure(f"{remote.host}/demo", "Always")


async def test_a_registry_that_stops_in_the_middle_of_a_layer(puller: Puller, remote: served.Registry) -> None:
    remote.push("demo", {"disk/disk.img": os.urandom(1 << 20)})
    remote.hangs_at = "blob"
    with pytest.raises(PullError, match="sends nothing any more"):
        await puller.ensure(f"{remote.host}/demo", "Always")


async def test_half_a_layer(puller: Puller, remote: served.Registry) -> None:
    remote.push("demo", {"disk/disk.img": os.urandom(1 << 20)})
    remote.half = True
    with pytest.raises(PullError, match="EOF"):
        await puller.ensure(f"{remote.host}/demo", "Always")


async def test_a_layer_that_is_another(puller: Puller, remote: served.Registry) -> None:
    remote.push("demo", FILES)
    for digest, content in list(remote.blobs.items()):
        if content[:2] == b"\x1f\x8b":
            remote.blobs[digest] = gzip.compress(b"something else".ljust(4096))[: len(content)].ljust(len(content))
    with pytest.raises(PullError, match=r"(?i)digest|gzip|EOF|checksum"):
        await puller.ensure(f"{remote.host}/demo", "Always")


async def test_an_unknown_image_and_one_for_another_machine(puller: Puller, remote: served.Registry) -> None:
    with pytest.raises(PullError, match="manifest unknown"):
        await puller.ensure(f"{remote.host}/nothing", "Always")
    remote.push("demo", FILES, indexed=True)
    media_type, content = remote.manifests["demo:latest"]
    remote.manifests["demo:latest"] = (media_type, content.replace(b"amd64", b"sparc"))
    with pytest.raises(PullError, match=r"not made for linux/.*linux/sparc"):
        await puller.ensure(f"{remote.host}/demo", "Always")


async def test_an_image_without_a_disk(puller: Puller, remote: served.Registry) -> None:
    remote.push("demo", {"etc/passwd": b"root"})
    with pytest.raises(ImageError, match="no files below /disk"):
        await puller.ensure(f"{remote.host}/demo", "Always")
    assert puller.store.images() == []


async def test_more_than_may_be_fetched(puller: Puller, remote: served.Registry) -> None:
    remote.push("demo", {"disk/disk.img": os.urandom(1 << 16)})
    with_limits(puller, compressed_bytes=1 << 12)
    with pytest.raises(PullError, match="at most 4096 are fetched"):
        await puller.ensure(f"{remote.host}/demo", "Always")
    assert not [path for path in remote.asked if "/blobs/" in path]


async def test_a_layer_that_unpacks_without_end(puller: Puller, remote: served.Registry, tmp_path: Path) -> None:
    puller.store = ImageStore(tmp_path / "images", layer_bytes=1 << 20)
    remote.push("demo", {"etc/zeros": bytes(1 << 22)})
    with pytest.raises(ImageError, match="unpacks to more than 1048576 bytes"):
        await puller.ensure(f"{remote.host}/demo", "Always")


async def test_pulls_make_room_by_what_nobody_uses(puller: Puller, remote: served.Registry) -> None:
    sizes = {name: os.urandom(1 << 20) for name in ("old", "used", "new")}
    for name, content in sizes.items():
        remote.push(name, {"disk/disk.img": content})
    puller.cap = lambda: (5 << 20) // 2
    await puller.ensure(f"{remote.host}/used", "IfNotPresent")
    puller.store.use("pod-1", "node", "ns/vm", [f"{remote.host}/used"])
    await puller.ensure(f"{remote.host}/old", "IfNotPresent")
    await puller.ensure(f"{remote.host}/new", "IfNotPresent")
    assert [image.reference for image in puller.store.images()] == [
        f"{remote.host}/new:latest",
        f"{remote.host}/used:latest",
    ]

"""Claims that are filled: by DataVolumes and data sources, from images, addresses and other claims."""

import asyncio
import gzip
import lzma
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anyvisor.api.crd import imports
from anyvisor.embedded.apiserver.admission import AdmissionRequest
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.resource import Resource
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.apiserver.status import Cause
from anyvisor.embedded.images.pull import Puller
from anyvisor.embedded.images.registry import Limits, Registry
from anyvisor.embedded.images.store import ImageStore
from anyvisor.embedded.imports import fills
from anyvisor.embedded.imports.fetch import Fetcher
from anyvisor.embedded.imports.kinds import CLONE_SOURCES, DATA_VOLUMES, IMPORT_SOURCES, PROGRESS
from anyvisor.embedded.imports.rules import ImportRules
from anyvisor.embedded.roles import roles
from anyvisor.embedded.volumes.claims import LocalClaims
from anyvisor.embedded.volumes.disks import Disks
from anyvisor.embedded.volumes.names import DISK, storage_class
from anyvisor.embedded.volumes.provisioner import Provisioner
from anyvisor.kube.backoff import BackoffPolicy
from anyvisor.kube.client import Client
from anyvisor.kube.errors import Invalid, NotFound
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.resources import EVENTS, PODS, PVCS, PVS, SECRETS
from tests.web import Web, serving

Json = dict[str, Any]
ADMIN = Identity("admin", ("system:masters",)).with_authenticated()
RUNNER = Identity("system:node:node-1", ("system:nodes",)).with_authenticated()
UNPRIVILEGED = 1_000_000_003 if os.geteuid() == 0 else os.geteuid()
MIB = 1 << 20
CONTENT = b"first sector".ljust(512, b"\0") + bytes(300_000) + b"end".ljust(512, b"\1")


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as served:
        yield served


@dataclass
class Rig:
    """A server, and the volumes of one machine, which can be stopped and started."""

    place: Path
    server: ApiServer
    client: Client
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    @property
    def disks(self) -> Disks:
        return Disks(self.place / "disks")

    @property
    def store(self) -> ImageStore:
        return ImageStore(self.place / "images")

    async def work(self) -> None:
        """Provision until cancelled, as a node does."""
        own = Client(self.server.inprocess(RUNNER))
        registry = Registry(self.place / "pulls", UNPRIVILEGED, self.place / "registries.conf", Limits(20, 2))
        async with EventRecorder(own, "test") as events:
            provisioner = Provisioner(own, events, self.disks)
            fetcher = Fetcher(
                client=own,
                puller=Puller(self.store, registry, lambda: 1 << 40),
                disks=self.disks,
                claims=LocalClaims(own, self.disks),
                user=UNPRIVILEGED,
                place=self.place / "fills",
                in_use=provisioner.user_of,
            )
            await provisioner.run(fetcher.fill)

    async def start(self) -> None:
        self.tasks.append(asyncio.ensure_future(self.work()))

    async def stop(self) -> None:
        task = self.tasks.pop()
        task.cancel()
        await asyncio.wait([task])

    async def volume(self, name: str, source: Json, size: str = "1Mi", **spec: Any) -> Json:
        """Create a DataVolume."""
        claim = {"resources": {"requests": {"storage": size}}} if size else {}
        body = {"source": source, "storage": claim, **spec}
        return await self.client.create(DATA_VOLUMES, named("cdi.kubevirt.io/v1beta1", "DataVolume", name, body))

    async def phase(self, name: str, *phases: str) -> Json:
        """The DataVolume, once it is in one of the phases."""

        async def look() -> Json | None:
            found = await self.client.get(DATA_VOLUMES, name, "default")
            return found if found.get("status", {}).get("phase") in phases else None

        return await eventually(look, lambda: self.client.get(DATA_VOLUMES, name, "default"))

    async def content(self, name: str) -> bytes:
        """What a bound claim's disk holds."""
        opened = await LocalClaims(self.client, self.disks).open("default", name, read_only=True)
        try:
            return os.pread(opened.descriptor, opened.virtual_bytes, 0)
        finally:
            os.close(opened.descriptor)

    async def events(self) -> list[tuple[str, str]]:
        return [(one["reason"], one["message"]) for one in (await self.client.list(EVENTS, "default"))["items"]]


def named(version: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def claim(name: str, **spec: Any) -> Json:
    size = {"requests": {"storage": "1Mi"}}
    return named("v1", "PersistentVolumeClaim", name, {"accessModes": ["ReadWriteOnce"], "resources": size, **spec})


async def eventually(done: Callable[[], Any], story: Callable[[], Any] | None = None) -> Any:
    try:
        async with asyncio.timeout(60):
            while True:
                found = await done()
                if found:
                    return found
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(await story() if story is not None else "not so after 60 s") from None


def running(volume: Json) -> Json:
    return next(one for one in volume["status"]["conditions"] if one["type"] == "Running")


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(fills, "POLICY", BackoffPolicy(base=0.05, cap=0.2))
    config = ServerConfig(
        database=tmp_path / "control" / "o.sqlite",
        objects=[storage_class(), *roles()],
        crds=imports(),
        admission=[ImportRules()],
    )
    async with ApiServer(config) as server:
        made = Rig(tmp_path, server, Client(server.inprocess(ADMIN)))
        await made.start()
        yield made
        for _ in list(made.tasks):
            await made.stop()
    left = [path for place in ("pulls", "fills") for path in (tmp_path / place).glob("*")]
    assert left == []


async def test_a_blank_one_and_an_image_of_this_machine(rig: Rig) -> None:
    (rig.place / "disk.raw").write_bytes(CONTENT)
    rig.store.import_file(rig.place / "disk.raw", "demo")
    await rig.volume("empty", {"blank": {}})
    await rig.volume("root", {"registry": {"url": "docker://demo"}}, preallocation=True)
    done = await rig.phase("root", "Succeeded")
    assert (done["status"]["progress"], done["status"]["claimName"], done["status"]["restartCount"]) == (
        *("100.0%", "root"),
        0,
    )
    states = {one["type"]: one["status"] for one in done["status"]["conditions"]}
    assert states == {"Bound": "True", "Ready": "True", "Running": "False"}
    assert await rig.content("root") == CONTENT.ljust(MIB, b"\0")
    made = await rig.client.get(PVCS, "root", "default")
    assert made["metadata"]["ownerReferences"][0]["kind"] == "DataVolume"
    disk = rig.place / "disks" / made["spec"]["volumeName"] / DISK
    assert disk.stat().st_blocks * 512 >= MIB
    await rig.phase("empty", "Succeeded")
    assert await rig.content("empty") == bytes(MIB)
    assert ("ImportSucceeded", "Successfully imported into PVC root") in await rig.events()
    assert rig.store.usage()[0].users == ()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["raw", "gz", "xz"])
async def test_a_file_at_an_address(rig: Rig, web: Web, pack: Callable[[bytes], bytes]) -> None:
    web.files["/disk"] = pack(CONTENT)
    await rig.volume("root", {"http": {"url": web.url("/disk")}})
    await rig.phase("root", "Succeeded")
    assert await rig.content("root") == CONTENT.ljust(MIB, b"\0")


@pytest.mark.skipif(shutil.which("qemu-img") is None, reason="qemu-img is not installed (qemu-utils)")
@pytest.mark.parametrize("kind", ["qcow2", "vmdk"])
async def test_a_disk_of_another_format_becomes_raw(rig: Rig, web: Web, kind: str) -> None:
    (rig.place / "disk.raw").write_bytes(CONTENT.ljust(MIB, b"\0"))
    words = ["qemu-img", "convert", "-f", "raw", "-O", kind, rig.place / "disk.raw", rig.place / "made"]
    await asyncio.to_thread(subprocess.run, words, check=True)
    web.files["/disk"] = (rig.place / "made").read_bytes()
    await rig.volume("root", {"http": {"url": web.url("/disk")}})
    await rig.phase("root", "Succeeded")
    assert await rig.content("root") == CONTENT.ljust(MIB, b"\0")


async def test_a_transfer_that_is_cut_off_goes_on(rig: Rig, web: Web) -> None:
    web.files["/disk"], web.cut["/disk"] = CONTENT, 200_000
    await rig.volume("root", {"http": {"url": web.url("/disk")}})
    await rig.phase("root", "Succeeded")
    assert await rig.content("root") == CONTENT.ljust(MIB, b"\0")
    assert [headers.get("range") for _, headers in web.asked] == [None, "bytes=200000-"]
    assert web.asked[1][1]["if-range"] == '"one"'


async def test_access_to_an_address_is_by_secrets(rig: Rig, web: Web) -> None:
    web.files["/disk"] = CONTENT
    source = {
        "url": web.url("/disk"),
        "secretRef": "login",
        "extraHeaders": ["X-Plain: a"],
        "secretExtraHeaders": ["more"],
    }
    await rig.volume("root", {"http": source})

    async def told() -> bool:
        found = await rig.client.get(DATA_VOLUMES, "root", "default")
        said = any("Secret more of namespace default cannot be read" in str(one) for one in [found.get("status")])
        return said and found["status"]["restartCount"] > 1

    await eventually(told)
    assert web.asked == []
    for name, data in (("more", {"x": "X-Token: t"}), ("login", {"accessKeyId": "alice", "secretKey": "s"})):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}}
        await rig.client.create(SECRETS, {**secret, "stringData": data})
    done = await rig.phase("root", "Succeeded")
    assert done["status"]["restartCount"] > 1
    headers = web.asked[-1][1]
    assert (headers["x-plain"], headers["x-token"], headers["authorization"]) == ("a", "t", "Basic YWxpY2U6cw==")


@pytest.mark.parametrize(
    ("content", "size", "sentence"),
    [
        (CONTENT, "64Ki", "and claim root asks for 65536; delete it, and ask for at least 1Mi"),
        (b"(\xb5/\xfd" + bytes(600), "1Mi", "is a zstd file"),
        (b"short", "1Mi", "holds 5 bytes, which is no disk"),
        (b"QFI\xfb" + bytes(600), "1Mi", "qcow2 version 0 is not supported"),
    ],
    ids=["larger", "foreign", "no-disk", "damaged"],
)
async def test_what_no_further_try_mends_fails_with_its_sentence(
    rig: Rig, web: Web, content: bytes, size: str, sentence: str
) -> None:
    web.files["/disk"] = content
    await rig.volume("root", {"http": {"url": web.url("/disk")}}, size)
    failed = await rig.phase("root", "Failed")
    assert sentence in running(failed)["message"]
    assert running(failed)["reason"] == "Error"
    assert (await rig.client.get(PVCS, "root", "default"))["status"]["phase"] == "Pending"
    assert list((rig.place / "disks").glob("*/*")) == []
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("path", "sentence"),
    [("/none", "the server answers 404"), ("/packed", "is packed and cut off"), ("/bomb", "holds more than")],
)
async def test_what_may_mend_is_tried_again_and_told(rig: Rig, web: Web, path: str, sentence: str) -> None:
    web.files["/packed"] = gzip.compress(os.urandom(90_000))[:50_000]
    web.files["/bomb"] = gzip.compress(bytes(80 * MIB))
    await rig.volume("root", {"http": {"url": web.url(path)}})

    async def told() -> bool:
        found = await rig.client.get(DATA_VOLUMES, "root", "default")
        return found.get("status", {}).get("restartCount", 0) > 1 and sentence in running(found)["message"]

    await eventually(told, lambda: rig.client.get(DATA_VOLUMES, "root", "default"))
    web.files[path] = CONTENT
    await rig.phase("root", "Succeeded")
    assert await rig.content("root") == CONTENT.ljust(MIB, b"\0")


async def test_a_fill_that_was_cut_off_starts_anew_and_is_never_seen_half(rig: Rig, web: Web) -> None:
    web.files["/disk"] = CONTENT
    web.held.add("/disk")
    await rig.volume("root", {"http": {"url": web.url("/disk")}})
    await rig.phase("root", "ImportInProgress")
    await eventually(lambda: _so(web.asked))
    await rig.stop()
    assert (await rig.client.get(PVCS, "root", "default"))["status"]["phase"] == "Pending"
    web.held.clear()
    await rig.start()
    await rig.phase("root", "Succeeded")
    assert await rig.content("root") == CONTENT.ljust(MIB, b"\0")


async def _so(found: object) -> bool:
    return bool(found)


async def test_a_data_volume_that_goes_ends_its_fill_and_leaves_nothing(rig: Rig, web: Web) -> None:
    web.files["/disk"] = CONTENT
    web.held.add("/disk")
    await rig.volume("root", {"http": {"url": web.url("/disk")}})
    await eventually(lambda: _so(web.asked))
    await rig.client.delete(DATA_VOLUMES, "root", "default")
    await eventually(lambda: _gone(rig.client, PVCS, "root"))

    async def none_left() -> bool:
        volumes = (await rig.client.list(PVS))["items"]
        return not volumes and not list((rig.place / "disks").glob("*")) and not list((rig.place / "fills").glob("*"))

    await eventually(none_left)


async def _gone(client: Client, resource: Any, name: str) -> bool:
    try:
        await client.get(resource, name, "default")
    except NotFound:
        return True
    return False


async def test_a_claim_is_copied_once_nobody_uses_it(rig: Rig) -> None:
    await rig.volume("first", {"blank": {}}, "2Mi")
    await rig.phase("first", "Succeeded")
    opened = await LocalClaims(rig.client, rig.disks).open("default", "first", read_only=False)
    os.pwrite(opened.descriptor, b"kept", MIB)
    os.close(opened.descriptor)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "first"}}]
    pod = named("v1", "Pod", "user", {"containers": [{"name": "c", "image": "i"}], "volumes": volumes})
    await rig.client.create(PODS, pod)
    await rig.volume("copy", {"pvc": {"name": "first", "namespace": "default"}}, size="")
    busy = await rig.phase("copy", "CloneInProgress")
    await eventually(lambda: _said(rig, "copy", "claim first is in use by pod user"), lambda: _so(busy))
    await rig.client.delete(PODS, "user", "default", grace=0)
    await rig.phase("copy", "Succeeded")
    assert (await rig.content("copy"))[MIB : MIB + 4] == b"kept"
    assert len(await rig.content("copy")) == 2 * MIB


async def _said(rig: Rig, name: str, sentence: str) -> bool:
    return sentence in str((await rig.client.get(DATA_VOLUMES, name, "default")).get("status"))


async def test_claims_name_their_sources_themselves(rig: Rig, web: Web) -> None:
    web.files["/disk"] = CONTENT
    group = "cdi.kubevirt.io"
    await rig.client.create(
        PVCS, claim("imported", dataSourceRef={"apiGroup": group, "kind": "VolumeImportSource", "name": "web"})
    )
    await eventually(lambda: _event(rig, "there is no VolumeImportSource web in namespace default; create it"))
    spec = {"source": {"http": {"url": web.url("/disk")}}}
    await rig.client.create(IMPORT_SOURCES, named(f"{group}/v1beta1", "VolumeImportSource", "web", spec))
    spec = {"source": {"kind": "PersistentVolumeClaim", "name": "imported"}}
    await rig.client.create(CLONE_SOURCES, named(f"{group}/v1beta1", "VolumeCloneSource", "again", spec))
    await rig.client.create(PVCS, claim("copy", dataSource={"kind": "PersistentVolumeClaim", "name": "imported"}))
    source = {"apiGroup": group, "kind": "VolumeCloneSource", "name": "again"}
    await rig.client.create(PVCS, claim("other", dataSourceRef=source))
    for name in ("imported", "copy", "other"):
        await eventually(lambda name=name: _bound(rig, name))
        assert await rig.content(name) == CONTENT.ljust(MIB, b"\0")
    assert (await rig.client.get(PVCS, "imported", "default"))["metadata"]["annotations"][PROGRESS].endswith("%")


async def _event(rig: Rig, message: str) -> bool:
    return any(message in said for _, said in await rig.events())


async def _bound(rig: Rig, name: str) -> bool:
    return (await rig.client.get(PVCS, name, "default"))["status"]["phase"] == "Bound"


async def test_a_claim_of_that_name_that_is_somebody_elses_is_left_alone(rig: Rig) -> None:
    await rig.client.create(PVCS, claim("mine"))
    await rig.volume("mine", {"blank": {}})
    waiting = await rig.phase("mine", "Pending")
    assert "that is not this DataVolume's" in str(waiting["status"])
    assert "ownerReferences" not in (await rig.client.get(PVCS, "mine", "default"))["metadata"]


@pytest.mark.parametrize(
    ("source", "claimed", "field", "sentence"),
    [
        ({}, {}, "spec.source", "is empty; name one"),
        ({"blank": {}, "http": {"url": "http://a/b"}}, {}, "spec.source", "has blank, http; keep one"),
        ({"upload": {}}, {}, "spec.source.upload", "anyvisor image import"),
        ({"s3": {"url": "s3://a/b"}}, {}, "spec.source.s3", "fetch the image by http"),
        ({"registry": {"url": "quay.io/a"}}, {}, "spec.source.registry.url", "give docker://"),
        ({"registry": {"url": "docker://A B"}}, {}, "spec.source.registry.url", "is no image name"),
        ({"http": {"url": "file:///etc/shadow"}}, {}, "spec.source.http.url", "is no address"),
        ({"http": {"url": "http://u:p@a/b"}}, {}, "spec.source.http.url", "use secretRef"),
        (
            {"http": {"url": "http://a/b", "extraHeaders": ["x\r\ny: z"]}},
            {},
            "spec.source.http.extraHeaders[0]",
            "is no",
        ),
        ({"pvc": {"name": "a", "namespace": "other"}}, {}, "spec.source.pvc.namespace", "within a namespace"),
        ({"blank": {}}, {"storage": {}}, "spec.storage.resources.requests.storage", "is missing"),
        ({"blank": {}}, {"storage": None}, "spec", "add storage"),
        ({"blank": {}}, {"pvc": {}}, "spec", "keep one"),
        ({"blank": {}}, {"contentType": "archive"}, "spec.contentType", "archives are not unpacked"),
        ({"blank": {}}, {"sourceRef": {"kind": "DataSource", "name": "x"}}, "spec.sourceRef", "DataSources are not"),
    ],
)
async def test_what_cannot_be_filled_is_refused_with_its_field(
    source: Json, claimed: Json, field: str, sentence: str
) -> None:
    spec = {"source": source, "storage": {"resources": {"requests": {"storage": "1Mi"}}}, **claimed}
    [cause] = await causes(DATA_VOLUMES.kind, spec)
    assert cause.field == field
    assert sentence in cause.message


async def test_the_server_asks_these_rules(rig: Rig) -> None:
    with pytest.raises(Invalid, match=r"spec\.source is empty; name one"):
        await rig.volume("root", {})


async def causes(kind: str, spec: Json, before: Json | None = None) -> list[Cause]:
    """What the rules say of an object."""
    group, version = ("kubevirt.io", "v1") if kind == "VirtualMachine" else ("cdi.kubevirt.io", "v1beta1")
    request = AdmissionRequest(
        operation="CREATE" if before is None else "UPDATE",
        resource=Resource(group, version, kind, f"{kind.lower()}s", namespaced=True),
        subresource="",
        namespace="default",
        name="one",
        object={"kind": kind, "spec": spec},
        old_object=None if before is None else {"kind": kind, "spec": before},
        user=ADMIN,
    )
    return list((await ImportRules().admit(request)).causes)


async def asked(templates: list[Json], before: list[Json] | None = None) -> list[Cause]:
    """What the rules say of a VM with these templates."""
    old = None if before is None else {"dataVolumeTemplates": before}
    return await causes("VirtualMachine", {"dataVolumeTemplates": templates}, old)


async def test_what_a_vm_brings_along_is_refused_with_the_vm() -> None:
    size = {"resources": {"requests": {"storage": "1Mi"}}}
    good: Json = {"metadata": {"name": "a"}, "spec": {"source": {"blank": {}}, "storage": size}}
    bad: Json = {"metadata": {"name": "b"}, "spec": {"source": {"s3": {"url": "s3://a"}}, "storage": size}}
    assert await asked([good]) == []
    [cause] = await asked([good, bad])
    assert cause.field == "spec.dataVolumeTemplates[1].spec.source.s3"
    assert "fetch the image by http" in cause.message
    assert await asked([good, bad], before=[bad]) == []


async def test_a_data_volume_does_not_change(rig: Rig) -> None:
    await rig.volume("root", {"blank": {}})
    with pytest.raises(Invalid, match="cannot be changed; delete it"):
        await rig.client.patch(DATA_VOLUMES, "root", "default", {"spec": {"preallocation": True}})

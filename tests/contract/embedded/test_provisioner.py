"""Claims, volumes and disks, against the API server of this project."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from anyvisor.agent.volumes.source import ClaimError
from anyvisor.api.crd import imports
from anyvisor.embedded.apiserver.config import ServerConfig
from anyvisor.embedded.apiserver.identity import Identity
from anyvisor.embedded.apiserver.server import ApiServer
from anyvisor.embedded.imports.fetch import Job, Report
from anyvisor.embedded.volumes.claims import LocalClaims
from anyvisor.embedded.volumes.disks import Disks
from anyvisor.embedded.volumes.names import DISK, storage_class
from anyvisor.embedded.volumes.provisioner import Provisioner
from anyvisor.kube.client import Client
from anyvisor.kube.errors import NotFound
from anyvisor.kube.events import EventRecorder
from anyvisor.kube.resources import EVENTS, PODS, PVCS, PVS

ADMIN = Identity("admin", ("system:masters",)).with_authenticated()
RUNNER = Identity("system:node:node-1", ("system:nodes",)).with_authenticated()


async def no_fill(job: Job, _report: Report) -> None:
    raise AssertionError(f"{job} is not to be filled")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    config = ServerConfig(database=tmp_path / "control" / "o.sqlite", objects=[storage_class()], crds=imports())
    async with ApiServer(config) as server:
        own = Client(server.inprocess(RUNNER))
        async with EventRecorder(own, "test") as events, asyncio.TaskGroup() as group:
            work = group.create_task(Provisioner(own, events, Disks(tmp_path / "disks")).run(no_fill))
            yield Client(server.inprocess(ADMIN))
            work.cancel()


@pytest.fixture
def claims(client: Client, tmp_path: Path) -> LocalClaims:
    return LocalClaims(client, Disks(tmp_path / "disks"))


def claim(name: str = "data", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}, **spec},
    }


async def eventually(done: Callable[[], Any]) -> Any:
    async with asyncio.timeout(10):
        while True:
            found = await done()
            if found:
                return found
            await asyncio.sleep(0.01)


async def bound(client: Client, name: str = "data") -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found = await client.get(PVCS, name, "default")
        return found if found.get("status", {}).get("phase") == "Bound" else None

    return await eventually(look)


async def gone(client: Client, resource: Any, name: str, namespace: str | None) -> bool:
    try:
        await client.get(resource, name, namespace)
    except NotFound:
        return True
    return False


async def test_a_claim_gets_a_volume_whose_disk_keeps_what_is_written(client: Client, claims: LocalClaims) -> None:
    await client.create(PVCS, claim())
    found = await bound(client)
    assert found["status"]["capacity"] == {"storage": "1Mi"}
    volume = await client.get(PVS, found["spec"]["volumeName"])
    assert volume["status"]["phase"] == "Bound"
    first = await claims.open("default", "data", read_only=False)
    os.pwrite(first.descriptor, b"kept", 0)
    os.close(first.descriptor)
    again = await claims.open("default", "data", read_only=True)
    assert (os.pread(again.descriptor, 4, 0), again.virtual_bytes) == (b"kept", 1 << 20)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(again.descriptor, b"x", 0)
    os.close(again.descriptor)


async def test_a_claim_of_another_class_is_left_alone(client: Client, claims: LocalClaims) -> None:
    await client.create(PVCS, claim("other", storageClassName="fast"))
    await client.create(PVCS, claim())
    await bound(client)
    assert (await client.get(PVCS, "other", "default"))["status"]["phase"] == "Pending"
    with pytest.raises(ClaimError) as caught:
        await claims.open("default", "other", read_only=False)
    assert caught.value.reason == "ClaimNotBound"


async def test_the_disk_goes_with_its_claim_once_no_pod_uses_it(
    client: Client, claims: LocalClaims, tmp_path: Path
) -> None:
    await client.create(PVCS, claim())
    volume = (await bound(client))["spec"]["volumeName"]
    os.close((await claims.open("default", "data", read_only=False)).descriptor)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }
    await client.create(PODS, pod)
    await client.delete(PVCS, "data", "default")
    await asyncio.sleep(0.3)
    assert not await gone(client, PVCS, "data", "default")
    assert (tmp_path / "disks" / volume / DISK).exists()
    await client.delete(PODS, "p", "default", grace=0)
    await eventually(lambda: gone(client, PVCS, "data", "default"))
    await eventually(lambda: gone(client, PVS, volume, None))
    assert not (tmp_path / "disks" / volume).exists()


async def test_a_new_claim_of_the_same_name_gets_a_new_disk(client: Client, claims: LocalClaims) -> None:
    await client.create(PVCS, claim())
    first = (await bound(client))["spec"]["volumeName"]
    await client.delete(PVCS, "data", "default")
    await eventually(lambda: gone(client, PVCS, "data", "default"))
    await client.create(PVCS, claim())
    assert (await bound(client))["spec"]["volumeName"] != first


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root" / "pvc-1").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root" / "pvc-1" / DISK).symlink_to(tmp_path / "secret")
    with pytest.raises(ClaimError, match="cannot be opened"):
        Disks(tmp_path / "root").open("pvc-1", 512, read_only=False)
    with pytest.raises(ClaimError, match="cannot be opened"):
        Disks(tmp_path / "root").open("../secret", 512, read_only=False)


def test_removal_stays_below_its_directory(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "kept").mkdir()
    for name in ("../kept", "..", ".", ""):
        Disks(tmp_path / "root").remove(name)
    assert (tmp_path / "kept").exists()
    assert (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "golden"}},
            "cannot fill a claim from VolumeSnapshot golden",
        ),
        ({"selector": {"matchLabels": {"disk": "fast"}}}, "leave the selector out"),
    ],
)
async def test_what_an_empty_disk_would_not_be_is_told_and_not_made(
    client: Client, spec: dict[str, Any], sentence: str
) -> None:
    await client.create(PVCS, claim(**spec))

    async def told() -> bool:
        events = await client.list(EVENTS, "default")
        return any(e["reason"] == "ProvisioningFailed" and sentence in e["message"] for e in events["items"])

    await eventually(told)
    assert (await client.get(PVCS, "data", "default"))["status"]["phase"] == "Pending"
    assert not (await client.list(PVS))["items"]

"""What a cluster's controller installs of a driver: its manifest as it ships it, so that its digest stays true."""

from pathlib import Path
from typing import Any, cast

from anyvisor.cluster.controller import ControllerConfig, install
from anyvisor.hri.kit.driver import Driver
from anyvisor.hri.packages import DriverPackage
from anyvisor.kube.client import Client
from anyvisor.kube.resources import CLASSES, DRIVERS, Resource
from anyvisor.planning.classes import installed
from tests.unit.planning.builders import driver, manifest

Json = dict[str, Any]


class Recorder:
    """A client that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[tuple[Resource, Json]] = []

    async def apply(self, resource: Resource, obj: Json, **_: Any) -> None:
        self.written.append((resource, obj))

    async def create(self, resource: Resource, obj: Json, *_: Any) -> None:
        self.written.append((resource, obj))

    async def get(self, *_: Any) -> Json:
        return {}

    async def patch(self, *_: Any, **__: Any) -> None:
        return None


def no_driver(_place: Path) -> Driver:
    raise NotImplementedError


RESULT: Json = {"digest": "sha256:x", "results": [{"id": "run.boot", "outcome": "passed", "title": "It boots"}]}


async def test_the_image_of_the_installation_stands_beside_the_manifest() -> None:
    client = Recorder()
    package = DriverPackage("test", manifest(), no_driver, evidence=(RESULT,))
    config = ControllerConfig("anyvisor", images={"test": "registry.test/launcher:2"})
    await install(cast("Client", client), config, [package])
    (made,) = (obj for resource, obj in client.written if resource == DRIVERS)
    assert made["spec"]["manifest"] == package.manifest
    assert made["spec"]["evidence"] == [{"digest": "sha256:x", "results": [{"id": "run.boot", "outcome": "passed"}]}]
    known = installed(made)
    assert known.digest == driver().digest
    assert known.manifest.pod.image == "registry.test/launcher:2"
    assert [obj["spec"]["driver"] for resource, obj in client.written if resource == CLASSES] == ["test.example.org"]


async def test_a_driver_without_an_image_of_the_installation_keeps_its_own() -> None:
    client = Recorder()
    await install(cast("Client", client), ControllerConfig("anyvisor"), [DriverPackage("test", manifest(), no_driver)])
    (made,) = (obj for resource, obj in client.written if resource == DRIVERS)
    assert made["spec"] == {"manifest": manifest()}
    assert installed(made).manifest.pod.image == "example.org/test:1"

"""Which pod of a driver an agent uses: one for each version that has pods on its node."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from anyvisor.cluster.driver_links import DriverLinks, Version, newest, retired
from anyvisor.cluster.pods import NodePods
from anyvisor.hri.kit.driver import Driver
from anyvisor.hri.manifests import digest
from anyvisor.hri.packages import DriverPackage
from anyvisor.kube.objects import CachedObject, parse_object


def no_driver(_place: Path) -> Driver:
    raise NotImplementedError


PACKAGE = DriverPackage("some", {"driver": "some.test", "version": "2.0.0", "capabilities": {}}, no_driver)


def pod(name: str, version: str, created: str) -> CachedObject:
    labels = {"app": "anyvisor-driver", "anyvisor.io/driver": "some", "anyvisor.io/driver-version": version}
    metadata: dict[str, Any] = {"name": name, "namespace": "anyvisor", "labels": labels, "creationTimestamp": created}
    return parse_object(json.dumps({"metadata": metadata}).encode())


PODS = [
    pod("old", "1.0.0", "2026-01-01T00:00:00Z"),
    pod("now", "2.0.0", "2026-02-01T00:00:00Z"),
    pod("rolled", "2.0.0", "2026-03-01T00:00:00Z"),
    pod("older", "0.9.0", "2026-04-01T00:00:00Z"),
]


def test_older_versions_are_addressed_beside_the_current_one() -> None:
    found = retired(PACKAGE, PODS)
    assert [one.version for one in found] == ["0.9.0", "1.0.0"]
    assert [one.folder for one in (Version(PACKAGE), *found)] == ["some", "some@0.9.0", "some@1.0.0"]


def test_the_current_version_must_run_by_our_manifest(tmp_path: Path) -> None:
    """Of an older version nobody here has the manifest."""
    cache = SimpleNamespace(values=lambda: PODS)
    links = DriverLinks(cast("NodePods", SimpleNamespace(cache=cache)), "anyvisor", tmp_path, [PACKAGE])
    addresses = {address.key: address.manifest_digest for address in links.addresses()}
    assert addresses == {"some.test": digest(PACKAGE.manifest), "some.test@0.9.0": "", "some.test@1.0.0": ""}


def test_each_version_has_its_own_pod() -> None:
    names = [getattr(newest(one, PODS), "meta", None) for one in (Version(PACKAGE), *retired(PACKAGE, PODS))]
    assert [meta.name if meta else "" for meta in names] == ["rolled", "older", "old"]
    assert newest(Version(PACKAGE), []) is None

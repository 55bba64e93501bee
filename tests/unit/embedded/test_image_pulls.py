"""What pulls are decided by: names, policies, credentials, uses and the store's size."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from anyvisor.embedded.images import reference
from anyvisor.embedded.images.credentials import CredentialsError, merged
from anyvisor.embedded.images.settings import read_cap, write_cap
from anyvisor.embedded.images.store import ImageStore
from anyvisor.embedded.podrunner.images import Wanted, images

SUM = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("given", "source"),
    [
        ("demo", "docker.io/library/demo:latest"),
        ("team/demo:1", "docker.io/team/demo:1"),
        ("quay.io/team/demo", "quay.io/team/demo:latest"),
        ("localhost/demo:2", "localhost/demo:2"),
        ("host:5000/a/b:3", "host:5000/a/b:3"),
        (f"quay.io/a@{SUM}", f"quay.io/a@{SUM}"),
        (f"quay.io/a:1@{SUM}", f"quay.io/a@{SUM}"),
    ],
)
def test_names_are_completed_as_container_tools_do(given: str, source: str) -> None:
    assert reference.source(given) == source


def secret(kind: str, key: str, content: Any, name: str = "s") -> dict[str, Any]:
    data = base64.b64encode(json.dumps(content).encode()).decode()
    return {"metadata": {"name": name}, "type": kind, "data": {key: data}}


def test_credentials_of_all_forms_become_one_file() -> None:
    joined = {"auth": base64.b64encode(b"a:b").decode()}
    apart = {"username": "a", "password": "b"}
    made = merged(
        [
            secret(
                "kubernetes.io/dockerconfigjson",
                ".dockerconfigjson",
                {"auths": {"https://index.docker.io/v1/": apart, "quay.io": joined}},
            ),
            secret("kubernetes.io/dockercfg", ".dockercfg", {"quay.io": {"auth": "later"}, "other:5000": joined}),
        ]
    )
    auths = json.loads(made)["auths"]
    assert {host: entry["auth"] for host, entry in auths.items()} == dict.fromkeys(
        ("docker.io", "quay.io", "other:5000"), joined["auth"]
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (secret("Opaque", ".dockerconfigjson", {}), "type 'Opaque'"),
        (secret("kubernetes.io/dockercfg", "other", {}), "has no .dockercfg"),
        (secret("kubernetes.io/dockercfg", ".dockercfg", 5), "holds no credentials"),
        (
            {"metadata": {"name": "s"}, "type": "kubernetes.io/dockercfg", "data": {".dockercfg": "%%"}},
            "cannot be read",
        ),
    ],
)
def test_a_secret_without_credentials_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(CredentialsError, match=words):
        merged([given])


def test_a_pods_images_with_the_policy_of_their_tag() -> None:
    volumes: list[dict[str, Any]] = [
        {"name": "a", "image": {"reference": "demo"}},
        {"name": "b", "image": {"reference": "demo:1"}},
        {"name": "c", "image": {"reference": "demo:2", "pullPolicy": "Never"}},
        {"name": "d", "emptyDir": {}},
        {"name": "e", "image": {"reference": "demo"}},
    ]
    assert images({"spec": {"volumes": volumes}}) == [
        Wanted("demo", "Always"),
        Wanted("demo:1", "IfNotPresent"),
        Wanted("demo:2", "Never"),
    ]


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def take(store: ImageStore, tmp_path: Path, name: str, *, pulled: bool, used_at: int = 0) -> None:
    file = tmp_path / f"{name}.img"
    file.write_bytes(os.urandom(1 << 20))
    store.import_file(file, name, pulled_digest=SUM if pulled else "")
    (entry,) = [path for path in (tmp_path / "store/refs").iterdir() if f'"{name}:latest"' in path.read_text()]
    os.utime(entry, (used_at, used_at))


def names(store: ImageStore) -> list[str]:
    return [image.reference.removesuffix(":latest") for image in store.images()]


def test_the_longest_unused_goes_first_and_only_what_can_be_had_again(store: ImageStore, tmp_path: Path) -> None:
    for at, name in enumerate(("old", "used", "new")):
        take(store, tmp_path, name, pulled=True, used_at=at)
    take(store, tmp_path, "mine", pulled=False, used_at=-1)
    store.use("pod", "node", "ns/vm", ["used"])
    assert [image.reference for image in store.collect(3 << 20)] == ["old:latest"]
    assert names(store) == ["mine", "new", "used"]
    assert [image.reference for image in store.collect(0)] == ["new:latest"]
    store.done("pod")
    assert [image.reference for image in store.collect(0)] == ["used:latest"]
    assert names(store) == ["mine"]


def test_content_that_a_machine_uses_outlives_its_name(store: ImageStore, tmp_path: Path) -> None:
    take(store, tmp_path, "demo", pulled=True)
    before = store.get("demo").disk()
    store.use("pod", "node", "ns/vm", ["demo"])
    take(store, tmp_path, "demo", pulled=True)
    os.close(store.open(before))
    store.keep_only("node", ())
    store.collect(1 << 40)
    with pytest.raises(FileNotFoundError):
        store.open(before)


def test_uses_end_with_their_node_only(store: ImageStore, tmp_path: Path) -> None:
    take(store, tmp_path, "demo", pulled=True)
    store.use("one", "node-1", "ns/a", ["demo"])
    store.use("two", "node-2", "ns/b", ["demo"])
    store.keep_only("node-1", ())
    (usage,) = store.usage()
    assert usage.users == ("ns/b",)


def test_the_size_is_kept(tmp_path: Path) -> None:
    assert read_cap(tmp_path) > 0
    write_cap(tmp_path, 5 << 30)
    assert read_cap(tmp_path) == 5 << 30

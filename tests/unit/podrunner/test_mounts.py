"""What a pod's volumes hold, and where they are found."""

import base64
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.agent.volumes import payloads
from anyvisor.embedded.podrunner import hostpath, mounts, projection
from anyvisor.embedded.podrunner.hostpath import HostPathError
from anyvisor.embedded.podrunner.projection import CONFIG_MAP, SECRET, ProjectionError


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_secret_is_decoded() -> None:
    found = {"data": {"userdata": encoded("#cloud-config")}}
    assert projection.of_object("v", SECRET, found, {"secretName": "s"}) == {"userdata": b"#cloud-config"}


def test_a_config_map_holds_text_and_bytes() -> None:
    found = {"data": {"a": "text"}, "binaryData": {"b": encoded("bytes")}}
    assert projection.of_object("v", CONFIG_MAP, found, {"name": "c"}) == {"a": b"text", "b": b"bytes"}


def test_items_choose_and_rename() -> None:
    source = {"secretName": "s", "items": [{"key": "a", "path": "deep/er/b"}]}
    found = {"data": {"a": encoded("1"), "other": encoded("2")}}
    assert projection.of_object("v", SECRET, found, source) == {"deep/er/b": b"1"}


def test_what_is_missing_is_named_with_the_next_step() -> None:
    with pytest.raises(ProjectionError, match="volume 'v' waits for Secret 's', which does not exist; create it"):
        projection.of_object("v", SECRET, None, {"secretName": "s"})
    with pytest.raises(ProjectionError, match="waits for key 'a' of ConfigMap 'c'"):
        projection.of_object("v", CONFIG_MAP, {}, {"name": "c", "items": [{"key": "a", "path": "a"}]})


def test_what_is_optional_may_be_missing() -> None:
    assert projection.of_object("v", SECRET, None, {"secretName": "s", "optional": True}) == {}


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../up", "a/../b", "a//b", "..data", "a\0b"])
def test_a_path_out_of_the_volume_is_refused(path: str) -> None:
    source = {"name": "c", "items": [{"key": "a", "path": path}]}
    with pytest.raises(ProjectionError, match="no path inside"):
        projection.of_object("v", CONFIG_MAP, {"data": {"a": "1"}}, source)


POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"b": 'say "hi"', "a": "1"}},
    "spec": {"containers": [{"name": "compute", "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}}]},
}


@pytest.mark.parametrize(
    ("field", "content"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, b"p"),
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, b"ns"),
        ({"fieldRef": {"fieldPath": "metadata.labels"}}, b'a="1"\nb="say \\"hi\\""'),
        ({"fieldRef": {"fieldPath": "metadata.labels['a']"}}, b"1"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['none']"}}, b""),
        ({"resourceFieldRef": {"containerName": "compute", "resource": "limits.cpu"}}, b"2"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, b"1500"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, b"64"),
    ],
)
def test_fields_of_the_pod(field: dict[str, Any], content: bytes) -> None:
    assert projection.of_pod("v", POD, {"items": [{"path": "f", **field}]}) == {"f": content}


@pytest.mark.parametrize(
    "field", [{"fieldRef": {"fieldPath": "spec.nodeName"}}, {"resourceFieldRef": {"resource": "cpu"}}]
)
def test_a_field_that_there_is_not_is_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ProjectionError, match="volume 'v' asks for"):
        projection.of_pod("v", POD, {"items": [{"path": "f", **field}]})


def read(root: Path, path: str) -> dict[str, bytes]:
    directory = os.open(root / path.lstrip("/"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        return dict(payloads.read(directory))
    finally:
        os.close(directory)


NAMES = st.from_regex(r"[a-z][a-z0-9._-]{0,20}(/[a-z][a-z0-9]{0,5}){0,2}", fullmatch=True)


@given(
    st.dictionaries(NAMES, st.binary(max_size=50), max_size=5),
    st.dictionaries(NAMES, st.binary(max_size=50), max_size=5),
)
def test_what_is_written_is_read_and_replaced_as_a_whole(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, bytes], second: dict[str, bytes]
) -> None:
    def consistent(files: dict[str, bytes]) -> dict[str, bytes]:
        return {path: data for path, data in files.items() if not any(other.startswith(f"{path}/") for other in files)}

    root = tmp_path_factory.mktemp("pod")
    for files in (consistent(first), consistent(second)):
        mounts.write(root, {"/run/volumes/v": files})
        assert read(root, "/run/volumes/v") == files
    assert stat.S_IMODE((root / "run/volumes/v").stat().st_mode) == 0o700
    versions = [name for name in os.listdir(root / "run/volumes/v") if name.startswith("..") and name != "..data"]
    assert len(versions) == 1


def test_a_volume_that_is_too_large_is_refused() -> None:
    with pytest.raises(ProjectionError, match="of at most"):
        projection.check_size({"/v": {"a": b"x" * (projection.MAX_BYTES + 1)}})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return tmp_path


def test_a_directory_of_the_host_is_made_where_it_may_be(place: Path) -> None:
    descriptor = hostpath.open_directory(str(place / "disks" / "web"), create=True)
    assert os.path.samestat(os.fstat(descriptor), (place / "disks" / "web").stat())
    os.close(descriptor)


@pytest.mark.parametrize("path", ["relative", "/etc/x", "/proc/1", "/srv/../etc", "/usr"])
def test_places_that_are_never_for_disks(path: str) -> None:
    with pytest.raises(HostPathError):
        hostpath.open_directory(path, create=True)


def test_the_instance_itself_is_no_place_for_disks(place: Path) -> None:
    (place / "control").mkdir()
    with pytest.raises(HostPathError, match="no place for disks"):
        hostpath.open_directory(str(place / "control"), create=False, forbidden=(place,))


def writable(path: Path) -> None:
    path.chmod(0o777)


def linked(path: Path) -> None:
    path.rmdir()
    path.symlink_to("/var")


def given_away(path: Path) -> None:
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (writable, "can be written by other users"),
        (linked, "is a link"),
        pytest.param(
            given_away,
            "belongs to user 12345",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
    ],
)
def test_a_directory_that_somebody_else_could_change_is_refused(
    place: Path, change: Callable[[Path], None], words: str
) -> None:
    (place / "disks").mkdir()
    change(place / "disks")
    with pytest.raises(HostPathError, match=words):
        hostpath.open_directory(str(place / "disks"), create=False)

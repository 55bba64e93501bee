"""Records: whole or not at all, and never mistaken."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyvisor.agent import linux, records
from anyvisor.agent.records import EndpointRecord, EndRecord, Record, RecordError, RecordStore, Stage

RECORD = Record(
    machine_id="11111111-2222-3333-4444-555555555555",
    namespace="default",
    name="vm",
    pod_uid="p",
    pod_name="virt-launcher-vm",
    boot_id="b",
    pid=7,
    start_time=8,
    driver="fake.anyvisor.io",
    driver_version="1",
    hri_minor=1,
    plan_digest="sha256:0",
    generation=3,
    stage=Stage.HANDING_OVER,
    handle=b"\0\xff",
    driver_handles=("control",),
    endpoints=(EndpointRecord(id="control", name="control.sock", purpose=1, exclusive=True),),
)


def test_a_record_is_read_as_it_was_written(tmp_path: Path):
    store = RecordStore(tmp_path / "machines")
    store.write(RECORD)
    assert store.read(RECORD.machine_id) == RECORD
    ended = msgspec.structs.replace(RECORD, stage=Stage.ENDED, end=EndRecord(phase=6, reason=1))
    store.write(ended)
    assert store.read(RECORD.machine_id) == ended
    assert list(store.ids()) == [RECORD.machine_id]


def test_forgetting_leaves_nothing(tmp_path: Path):
    store = RecordStore(tmp_path / "machines")
    store.write(RECORD)
    (tmp_path / "machines" / RECORD.machine_id / "disk.overlay").write_text("x")
    store.drop(RECORD.machine_id)
    assert store.read(RECORD.machine_id) is None
    assert list(store.ids()) == [RECORD.machine_id]
    store.forget(RECORD.machine_id)
    assert list(store.ids()) == []
    store.forget(RECORD.machine_id)
    store.drop(RECORD.machine_id)


def test_nothing_is_known_where_nothing_was_written(tmp_path: Path):
    store = RecordStore(tmp_path / "machines")
    assert list(store.ids()) == []
    assert store.read("nobody") is None


@pytest.mark.parametrize("machine_id", ["", "../x", ".hidden", "a/b"])
def test_an_id_that_is_a_path_is_refused(tmp_path: Path, machine_id: str):
    with pytest.raises(RecordError):
        RecordStore(tmp_path).write(msgspec.structs.replace(RECORD, machine_id=machine_id))


@given(st.binary(max_size=200))
def test_what_is_no_record_is_told_and_left_alone(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    root = tmp_path_factory.mktemp("records")
    (root / "m").mkdir()
    (root / "m" / records.FILE_NAME).write_bytes(content)
    with pytest.raises(RecordError, match="its machine is not touched"):
        RecordStore(root).read("m")
    assert (root / "m" / records.FILE_NAME).read_bytes() == content


@pytest.mark.parametrize("changes", [{"version": 2}, {"machine_id": "other"}])
def test_a_record_of_something_else_is_refused(tmp_path: Path, changes: dict[str, object]):
    (tmp_path / "m").mkdir()
    strange = msgspec.structs.replace(RECORD, **{"machine_id": "m", **changes})
    (tmp_path / "m" / records.FILE_NAME).write_bytes(msgspec.json.encode(strange))
    with pytest.raises(RecordError):
        RecordStore(tmp_path).read("m")


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "huge"])
def test_a_record_that_is_no_small_file_is_refused(tmp_path: Path, kind: str):
    file = tmp_path / "m" / records.FILE_NAME
    file.parent.mkdir()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(msgspec.json.encode(msgspec.structs.replace(RECORD, machine_id="m")))
        file.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    else:
        with file.open("wb") as large:
            large.truncate(records.SIZE_LIMIT + 1)
    with pytest.raises(RecordError):
        RecordStore(tmp_path).read("m")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        linux.mount_tmpfs(str(disk), size=64 * 1024, mode=0o700, uid=0, gid=0)
    except PermissionError:
        pytest.skip("nothing can be mounted here")
    yield disk
    linux.unmount(str(disk))


def test_a_full_disk_keeps_the_old_record(small_disk: Path):
    store = RecordStore(small_disk / "machines")
    store.write(RECORD)
    filler = os.open(small_disk / "filler", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError) as full:
        while True:
            os.write(filler, b"x" * 4096)
    os.close(filler)
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(RecordError, match="free space there"):
        store.write(msgspec.structs.replace(RECORD, handle=b"y" * 8192))
    assert store.read(RECORD.machine_id) == RECORD
    (small_disk / "filler").unlink()
    store.write(msgspec.structs.replace(RECORD, pid=9))
    assert os.listdir(small_disk / "machines" / RECORD.machine_id) == [records.FILE_NAME]

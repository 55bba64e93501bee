"""What must survive us: one record per machine, on the disk before the launch plan leaves.

A record is replaced whole (write, fsync, rename, fsync of the directory). A file that cannot be read is reported
and left alone: it may belong to a machine that runs.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from anyvisor.agent.processes import ProcessIdentity

FILE_NAME: Final = "record.json"
SIZE_LIMIT: Final = 512 * 1024
_VERSION: Final = 1


class RecordError(Exception):
    """A record cannot be written or read; the message names the file, the cause and the next step."""


class Stage(StrEnum):
    """How far a machine is. Whether a plan was taken, the launcher tells: no write is spent on it."""

    HANDING_OVER = "HandingOver"
    """The plan may have left, and the guest may run."""
    ENDED = "Ended"
    """How it ended is known; only cleaning up is left."""


class EndpointRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One way to the VMM: a socket's name in the launcher's directory, and what it is for."""

    id: str
    name: str
    purpose: int
    socket: int = 1
    exclusive: bool = False
    device_id: str = ""
    protocol: str = ""
    reader_logs: bool = False


class HelperRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A program that was started beside the VMM; `on_exit` is the HRI's number."""

    name: str
    program: str
    on_exit: int


class EndRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the run ended: the driver's phase and reason (HRI numbers) and a sentence."""

    phase: int
    reason: int
    message: str = ""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that a later agent needs to take the machine over or to say how it ended."""

    version: int = _VERSION
    machine_id: str
    namespace: str
    name: str
    pod_uid: str
    pod_name: str
    boot_id: str
    pid: int
    start_time: int
    driver: str
    driver_version: str
    hri_minor: int
    plan_digest: str
    generation: int
    stage: Stage
    handle: bytes = b""
    driver_handles: tuple[str, ...] = ()
    endpoints: tuple[EndpointRecord, ...] = ()
    memory_cgroup: str = ""
    out_of_memory_kills: int = 0
    machine_type: str = ""
    accelerator: int = 0
    grace_seconds: float = 0.0
    acpi: bool = True
    hypervisor_class: str = ""
    has_process: bool = True
    """False: the launcher just waits beside the machine, which the driver runs elsewhere or keeps as an entry."""
    external: bool = False
    """Whether a daemon outside runs the guest: it does not end with the launcher, and only its driver can end it."""
    images: dict[str, str] = {}
    """The digest that each image's name stood for when the machine started."""
    helpers: tuple[HelperRecord, ...] = ()
    end: EndRecord | None = None

    @property
    def process(self) -> ProcessIdentity:
        """The launcher, later the VMM: exec keeps pid and start time."""
        return ProcessIdentity(self.boot_id, self.pid, self.start_time)


_decode = msgspec.json.Decoder(Record).decode


def write_file(directory: int, name: str, content: bytes, mode: int = 0o600) -> None:
    """Replace a file whole or not at all, durably; raises OSError and leaves the old one."""
    fresh = f".{name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(fresh, flags, mode, dir_fd=directory)
    try:
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(fresh, dir_fd=directory)
        raise
    os.fsync(directory)


def read_file(directory: int, name: str, limit: int) -> bytes:
    """Read a small regular file; raises FileNotFoundError, or OSError for what is no such file."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with open(descriptor, "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"{name} has more than {limit} bytes")
    return content


@dataclass(frozen=True, slots=True)
class RecordStore:
    """The records of one node: `root/<machine id>/record.json`. Blocking calls of a few milliseconds."""

    root: Path

    def directory(self, machine_id: str) -> int:
        """A descriptor of the machine's own directory, made durably when missing; the caller's to close."""
        path = self._path(machine_id)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            path.mkdir(mode=0o700, parents=True)
            _sync(self.root)
        else:
            _sync(self.root)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def write(self, record: Record) -> None:
        """Put the record on the disk; returns when it is there.

        Raises:
            RecordError: it is not; the older one, if any, still stands.
        """
        try:
            directory = self.directory(record.machine_id)
            try:
                write_file(directory, FILE_NAME, msgspec.json.encode(record))
            finally:
                os.close(directory)
        except OSError as error:
            raise RecordError(
                f"the record of machine {record.machine_id} cannot be written to {self.root}: "
                f"{error.strerror or error}; free space there, the start is tried again"
            ) from error

    def read(self, machine_id: str) -> Record | None:
        """Read a record; None when there is none.

        Raises:
            RecordError: there is one that cannot be used.
        """
        path = self._path(machine_id)
        try:
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RecordError(f"{path} is no directory of a machine: {error.strerror}; remove it") from error
        try:
            record = _decode(read_file(directory, FILE_NAME, SIZE_LIMIT))
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise _damaged(path, str(error)) from error
        finally:
            os.close(directory)
        if record.version != _VERSION:
            raise _damaged(path, f"its version is {record.version}, not {_VERSION}")
        if record.machine_id != machine_id:
            raise _damaged(path, f"it is the record of {record.machine_id}")
        return record

    def ids(self) -> Iterator[str]:
        """The machines that have a directory here."""
        try:
            names = os.listdir(self.root)
        except FileNotFoundError:
            return
        for name in sorted(names):
            if not name.startswith("."):
                yield name

    def drop(self, machine_id: str) -> None:
        """Remove the record and keep the machine's other files: no plan of it has left."""
        path = self._path(machine_id)
        try:
            (path / FILE_NAME).unlink()
        except FileNotFoundError:
            return
        _sync(path)

    def forget(self, machine_id: str) -> None:
        """Remove the record first, durably, then all else of the machine."""
        path = self._path(machine_id)
        try:
            (path / FILE_NAME).unlink(missing_ok=True)
            shutil.rmtree(path)
            _sync(self.root)
        except FileNotFoundError:
            return

    def _path(self, machine_id: str) -> Path:
        if not machine_id or "/" in machine_id or machine_id.startswith("."):
            raise RecordError(f"{machine_id[:80]!r} is no machine id")
        return self.root / machine_id


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damaged(path: Path, cause: str) -> RecordError:
    return RecordError(
        f"{path / FILE_NAME} cannot be used ({cause}); its machine is not touched: "
        "end its process by hand if it runs, then remove the directory"
    )

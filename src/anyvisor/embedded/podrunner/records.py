"""What the pod runner must remember over its own end: one record per pod, on the disk before a launcher starts."""

import asyncio
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from anyvisor.agent.processes import ProcessIdentity
from anyvisor.agent.records import read_file, write_file

FILE_NAME: Final = "pod.json"
_LIMIT: Final = 64 * 1024


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the launcher ended: exit code and signal as far as anybody saw them."""

    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    at: str = ""


class PodRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod that was accepted. `pid` 0: its launcher was about to start; no plan can have reached that one."""

    uid: str
    namespace: str
    name: str
    user: int
    group: int
    cgroups: tuple[str, ...] = ()
    pod_ip: str = ""
    boot_id: str = ""
    pid: int = 0
    start_time: int = 0
    started_at: str = ""
    exit: ExitRecord | None = None

    @property
    def process(self) -> ProcessIdentity:
        """The launcher."""
        return ProcessIdentity(self.boot_id, self.pid, self.start_time)


_decode = msgspec.json.Decoder(PodRecord).decode


@dataclass(slots=True)
class PodBooks:
    """All records of one node, read once and written through."""

    root: Path
    pods: dict[str, PodRecord] = field(default_factory=dict[str, PodRecord])
    broken: dict[str, str] = field(default_factory=dict[str, str])
    """Records that cannot be read, and why; their processes are left alone."""
    _reserved: dict[str, int] = field(default_factory=dict[str, int])

    def load(self) -> None:
        """Read all records."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in sorted(self.root.iterdir()):
            try:
                directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    record = _decode(read_file(directory, FILE_NAME, _LIMIT))
                finally:
                    os.close(directory)
            except FileNotFoundError:
                shutil.rmtree(path, ignore_errors=True)
                continue
            except (OSError, msgspec.DecodeError) as error:
                self.broken[path.name] = f"{path / FILE_NAME} cannot be used: {error}"
                continue
            self.pods[record.uid] = record

    async def write(self, record: PodRecord) -> None:
        """Put a record on the disk, then into the books; raises OSError and changes nothing."""
        await asyncio.to_thread(self._write, record)
        self.pods[record.uid] = record

    def _write(self, record: PodRecord) -> None:
        path = self.root / record.uid
        path.mkdir(mode=0o700, exist_ok=True)
        for directory in (path, self.root):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if directory is path:
                    write_file(descriptor, FILE_NAME, msgspec.json.encode(record))
                else:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    async def forget(self, uid: str) -> None:
        """Remove a record, and give its user id back."""
        self.pods.pop(uid, None)
        self._reserved.pop(uid, None)
        await asyncio.to_thread(shutil.rmtree, self.root / uid, ignore_errors=True)

    def reserve_user(self, uid: str, first: int, count: int) -> int:
        """A user id that no other pod of this node has, this one's until it is forgotten.

        Raises OSError when all are taken.
        """
        if uid in self._reserved:
            return self._reserved[uid]
        taken = {record.user for record in self.pods.values()} | set(self._reserved.values())
        for user in range(first, first + count):
            if user not in taken:
                self._reserved[uid] = user
                return user
        raise OSError(f"all {count} user ids for machines of this node are taken; delete some machines")

"""Which network an instance has, and which pod has which of its addresses: one small file, shared under a lock."""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

import msgspec

from anyvisor.embedded.podnetwork.plans import PodNetworkError


class Pod(msgspec.Struct, frozen=True):
    """One namespace. `ready` only when all of it was made."""

    address: str
    name: str = ""
    ready: bool = False


class Books(msgspec.Struct, frozen=True):
    """Everything that is known. `spares` are ready and wait for a pod."""

    network: str = ""
    pods: dict[str, Pod] = {}
    spares: tuple[Pod, ...] = ()

    def addresses(self) -> set[str]:
        """All that are taken."""
        return {each.address for each in (*self.pods.values(), *self.spares)}

    def names(self) -> set[str]:
        """All namespaces that are known."""
        return {each.name for each in (*self.pods.values(), *self.spares)}

    def with_pod(self, uid: str, pod: Pod | None) -> "Books":
        """The same with another entry for a pod, or none."""
        pods = {key: each for key, each in self.pods.items() if key != uid}
        return msgspec.structs.replace(self, pods=pods if pod is None else {**pods, uid: pod})


class BookFile:
    """The file. The runtime directory does not outlive a reboot, as namespaces do not: nothing is synced."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextlib.contextmanager
    def locked(self) -> Generator[Books]:
        """The books, ours alone for the time of the block."""
        self._file.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        lock = os.open(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self.read()
        finally:
            os.close(lock)

    def read(self) -> Books:
        """The books as they are; also without the lock, as they are replaced whole."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Books)
        except FileNotFoundError:
            return Books()
        except msgspec.DecodeError as error:
            raise PodNetworkError(
                f"{self._file} is damaged ({error}): stop all virtual machines, then remove it"
            ) from error

    def write(self, books: Books) -> None:
        """Replace them: whole, or not at all."""
        unfinished = self._file.with_suffix(".new")
        unfinished.write_bytes(msgspec.json.encode(books))
        unfinished.replace(self._file)

    def remove(self) -> None:
        """Forget everything."""
        self._file.unlink(missing_ok=True)

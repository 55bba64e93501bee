"""Where the agent reaches the drivers of its node: links to sockets in the driver pods, renewed as these pods change.

A link leads to the socket's own inode (`/proc/self/fd/N`), which was opened in the pod following no link, so a driver
cannot lead the agent to a socket of somebody else.

A newer version of a driver comes as pods of its own, beside those of the older one, as long as that has machines here.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anyvisor.agent.driver import DriverAddress
from anyvisor.agent.handover import peer_of
from anyvisor.cluster.pods import NodePods
from anyvisor.hri.manifests import digest, stated
from anyvisor.hri.packages import DriverPackage
from anyvisor.kube.objects import CachedObject

log = logging.getLogger(__name__)

APP: Final = ("app", "anyvisor-driver")
DRIVER: Final = "anyvisor.io/driver"
VERSION: Final = "anyvisor.io/driver-version"
CONTAINER: Final = "driver"
SOCKETS: Final = ("hri.sock", "fd.sock")
PLACE: Final = "/run/anyvisor"
RETRY_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a driver in the pods of this node."""

    package: DriverPackage
    retired: str = ""
    """Its version, where it is not that of the package: it keeps its machines and gets no new ones."""

    @property
    def folder(self) -> str:
        """The name of its sockets' directory."""
        return f"{self.package.name}@{self.retired}" if self.retired else self.package.name

    @property
    def version(self) -> str:
        """As the pod's label has it."""
        return self.retired or str(self.package.manifest["version"])


@dataclass(slots=True)
class DriverLinks:
    """Keeps `directory`/DRIVER/{hri,fd}.sock current, for the drivers in pods of `namespace`."""

    pods: NodePods
    namespace: str
    directory: Path
    packages: Sequence[DriverPackage]
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _linked: dict[str, tuple[int, list[int]]] = field(default_factory=dict[str, tuple[int, list[int]]])
    _versions: list[Version] = field(default_factory=list[Version])

    def addresses(self) -> list[DriverAddress]:
        """Where each driver will be found, and each older version that has pods here now."""
        self._versions = [Version(package) for package in self.packages]
        for package in self.packages:
            self._versions += retired(package, self._pods(package.name))
        return [self._address(version) for version in self._versions]

    def _address(self, version: Version) -> DriverAddress:
        place = self.directory / version.folder
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        manifest = version.package.manifest
        hri, descriptors = (str(place / name) for name in SOCKETS)
        return DriverAddress(
            manifest["driver"],
            hri,
            descriptors,
            stated(manifest),
            version.retired,
            manifest_digest="" if version.retired else digest(manifest),
        )

    async def run(self) -> None:
        """Follow the driver pods until cancelled."""
        self.pods.cache.on_change(lambda _old, _new: self._changed.set())
        while True:
            self._changed.clear()
            settled = [await self._follow(version) for version in self._versions]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if all(settled) else RETRY_SECONDS):
                    await self._changed.wait()

    async def _follow(self, version: Version) -> bool:
        """Link one driver's sockets; False when another look is due soon."""
        pod = self._pod(version)
        if pod is None:
            return True
        process = await self.pods.process(pod.meta.uid, CONTAINER)
        if process is None:
            return False
        driver = version.folder
        try:
            known = self._linked.get(driver)
            if known is not None and known[0] == process.pid:
                return True
            inodes: list[int] = []
            try:
                for name in SOCKETS:
                    inodes.append(process.open_inode(f"{PLACE}/{name}"))
                    _check(inodes[-1], name, process.pid)
            except OSError as error:
                log.debug("driver %s does not listen yet: %s", driver, error)
                for inode in inodes:
                    os.close(inode)
                return False
            self._link(driver, process.pid, inodes)
            return True
        finally:
            process.close()

    def _link(self, driver: str, pid: int, inodes: list[int]) -> None:
        for name, inode in zip(SOCKETS, inodes, strict=True):
            fresh = self.directory / driver / f".{name}"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(f"/proc/self/fd/{inode}")
            fresh.replace(self.directory / driver / name)
        _, before = self._linked.get(driver, (0, []))
        for inode in before:
            os.close(inode)
        self._linked[driver] = pid, inodes
        log.info("driver %s is reached in process %s", driver, pid)

    def _pod(self, version: Version) -> CachedObject | None:
        """The newest pod of that version on this node."""
        return newest(version, self._pods(version.package.name))

    def _pods(self, driver: str) -> list[CachedObject]:
        """All pods of the driver on this node that are to stay."""
        return [
            pod
            for pod in self.pods.cache.values()
            if pod.meta.namespace == self.namespace
            and label_of(pod, APP[0]) == APP[1]
            and label_of(pod, DRIVER) == driver
            and not pod.meta.deletion_timestamp
        ]


def retired(package: DriverPackage, pods: Sequence[CachedObject]) -> list[Version]:
    """The versions in a driver's pods that are not the package's."""
    found = {label_of(pod, VERSION) for pod in pods} - {str(package.manifest["version"]), ""}
    return [Version(package, version) for version in sorted(found)]


def newest(version: Version, pods: Sequence[CachedObject]) -> CachedObject | None:
    """The pod to use of a driver's: the newest of that version."""
    found = [pod for pod in pods if label_of(pod, VERSION) in ("", version.version)]
    return max(found, key=lambda pod: pod.meta.creation_timestamp or "", default=None)


def label_of(pod: CachedObject, name: str) -> str:
    """A label's value; empty when there is none."""
    return (pod.meta.labels or {}).get(name, "")


def _check(inode: int, name: str, pid: int) -> None:
    """See that exactly this process listens: a socket that an earlier one left may still be there. Raises OSError."""
    if not stat.S_ISSOCK(os.fstat(inode).st_mode):
        raise OSError(f"{name} is no socket")
    kind = socket.SOCK_STREAM if name == SOCKETS[0] else socket.SOCK_SEQPACKET
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as probe:
        probe.connect(f"/proc/self/fd/{inode}")
        listener, _ = peer_of(probe)
    if listener != pid:
        raise OSError(f"process {listener} listens at {name}, not the driver's process {pid}")

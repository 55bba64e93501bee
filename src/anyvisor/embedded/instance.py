"""One embedded instance: where its state lives, and who its processes run as.

Durable state is below the data directory. Sockets live in a short runtime directory of their own, because a unix
socket's path holds at most 107 bytes and data directories are often longer.

Every command reads this module first, so it imports little (dataclasses alone would cost as much as all the rest).
"""

import fcntl
import json
import os
import zlib
from ipaddress import IPv4Network
from pathlib import Path
from typing import NamedTuple

DATA_DIR_VARIABLE = "ANYVISOR_DATA_DIR"
# The range that systemd's "Users, Groups, UIDs and GIDs" leaves to container managers.
_UID_RANGE_START = 1_000_000_000
_UIDS_PER_INSTANCE = 65_536
_CONTROL, _DRIVER, _IMAGES, _FIRST_VM = 1, 2, 3, 1_024
_FIRST_ADDED, _ADDED = 64, 512


class InstanceError(Exception):
    """The instance cannot be used; the message says why and what to do."""


class Users(NamedTuple):
    """User ids of the instance's processes; all are the caller's own when not root."""

    control: int
    driver: int
    images: int
    first_vm: int
    vm_count: int
    separate: bool

    def added(self, driver: str) -> int:
        """The user of a driver that was added: one of its own."""
        if not self.separate:
            return self.driver
        return self.control - _CONTROL + _FIRST_ADDED + zlib.crc32(driver.encode()) % _ADDED


class Instance(NamedTuple):
    """Paths and identity of one instance."""

    data_dir: Path
    run_dir: Path
    id: str
    api_port: int
    service_network: str = ""
    """Where Services get their cluster IPs from (IPv4 CIDR); chosen at the first start, and kept as they are."""
    audit: bool = False
    """Whether requests are recorded in the audit log; kept until it is switched again."""

    @property
    def kubeconfig(self) -> Path:
        """What kubectl uses to reach this instance."""
        return self.data_dir / "kubeconfig"

    @property
    def pki_dir(self) -> Path:
        """Certificates and keys."""
        return self.data_dir / "pki"

    @property
    def control_dir(self) -> Path:
        """The API server's store; owned by the control user."""
        return self.data_dir / "control"

    @property
    def database(self) -> Path:
        """All objects of the API."""
        return self.control_dir / "objects.sqlite"

    @property
    def audit_log(self) -> Path:
        """Where requests are recorded, when that is switched on."""
        return self.control_dir / "audit.log"

    @property
    def image_dir(self) -> Path:
        """The image store."""
        return self.data_dir / "images"

    @property
    def log_dir(self) -> Path:
        """One log file a process."""
        return self.data_dir / "logs"

    @property
    def zygote_socket(self) -> Path:
        """Where the zygote takes requests."""
        return self.run_dir / "zygote.sock"

    def node_dir(self, node: str) -> Path:
        """Durable records of one node."""
        return self.data_dir / "nodes" / node

    def node_run_dir(self, node: str) -> Path:
        """Sockets of one node's agent and drivers."""
        return self.run_dir / "nodes" / node

    def launchers_left(self) -> bool:
        """Whether anything of a launcher is on this host: its directory is what goes last."""
        return any(self.run_dir.glob("nodes/*/pods/*"))

    @property
    def users(self) -> Users:
        """Who the processes run as: users of the instance's own when we are root."""
        own = os.geteuid()
        if own != 0:
            return Users(own, own, own, own, 1, separate=False)
        slot = int(self.id, 16) % 8192
        base = _UID_RANGE_START + slot * _UIDS_PER_INSTANCE
        return Users(
            control=base + _CONTROL,
            driver=base + _DRIVER,
            images=base + _IMAGES,
            first_vm=base + _FIRST_VM,
            vm_count=_UIDS_PER_INSTANCE - _FIRST_VM,
            separate=True,
        )

    def log(self, name: str) -> Path:
        """The log file of the process `name`."""
        return self.log_dir / f"{name}.log"


def default_data_dir() -> Path:
    """The data directory that is used when none is named."""
    if named := os.environ.get(DATA_DIR_VARIABLE):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/lib/anyvisor")
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "anyvisor"


def _runtime_base() -> Path:
    if os.geteuid() == 0:
        return Path("/run/anyvisor")
    if base := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(base) / "anyvisor"
    import tempfile

    return Path(tempfile.gettempdir()) / f"anyvisor-{os.geteuid()}"


def open_instance(data_dir: Path) -> Instance:
    """Read the instance of `data_dir`.

    Raises:
        InstanceError: there is none yet, or its description is damaged.
    """
    file = data_dir / "instance.json"
    try:
        described = json.loads(file.read_bytes())
        instance_id, port = str(described["id"]), int(described["apiPort"])
        services = str(IPv4Network(described["serviceNetwork"])) if described.get("serviceNetwork") else ""
        int(instance_id, 16)
        audit = described.get("audit") is True
    except FileNotFoundError as error:
        raise InstanceError(f"no instance in {data_dir}: start one with `anyvisor --data-dir {data_dir} up`") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InstanceError(f"{file} is damaged ({error}): restore it, or remove {data_dir} to start anew") from error
    return Instance(data_dir, _runtime_base() / instance_id, instance_id, port, services, audit)


def create_instance(data_dir: Path) -> Instance:
    """Read the instance of `data_dir`, or make one there; idempotent."""
    data_dir = data_dir.absolute()
    try:
        data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        if not (data_dir / "instance.json").exists():
            described = {"id": os.urandom(4).hex(), "apiPort": 0}
            write_file(data_dir / "instance.json", json.dumps(described).encode(), 0o644)
        instance = open_instance(data_dir)
        _make_directories(instance)
    except OSError as error:
        raise InstanceError(
            f"cannot use {data_dir}: {error.strerror} ({error.filename}); choose another --data-dir"
        ) from error
    return instance


def describe(instance: Instance) -> None:
    """Remember what stays over restarts: the API server's port, the Services' network, the audit log's switch."""
    described = {
        "id": instance.id,
        "apiPort": instance.api_port,
        "serviceNetwork": instance.service_network,
        "audit": instance.audit,
    }
    write_file(instance.data_dir / "instance.json", json.dumps(described).encode(), 0o644)


def _make_directories(instance: Instance) -> None:
    users = instance.users
    for path, mode in (
        (instance.pki_dir, 0o700),
        (instance.control_dir, 0o700),
        (instance.image_dir, 0o711),
        (instance.log_dir, 0o700),
        (instance.data_dir / "nodes", 0o711),
        (instance.run_dir, 0o711),
        (instance.run_dir / "nodes", 0o711),
    ):
        path.mkdir(mode=mode, parents=True, exist_ok=True)
        if path.stat().st_uid != os.geteuid() and path != instance.control_dir:
            raise InstanceError(f"{path} belongs to another user; choose another --data-dir")
    if users.separate:
        os.chown(instance.control_dir, users.control, users.control)


def write_file(path: Path, content: bytes, mode: int) -> None:
    """Replace `path` whole or not at all, durably."""
    import tempfile

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def lock_instance(instance: Instance) -> int:
    """Hold the instance for one zygote; returns the descriptor that keeps the lock.

    Raises:
        InstanceError: it runs already.
    """
    handle = os.open(instance.run_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise InstanceError(f"the instance in {instance.data_dir} is running already") from error
    return handle

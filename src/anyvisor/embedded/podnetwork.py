"""The embedded container network: a bridge for each instance, and for each pod a namespace with one address on it.

Everything has the instance in its name, so that two instances never meet, and so that what a crash left behind can be
found and removed. Node processes of one instance share the books through a locked file.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import ipaddress
import json
import os
import shutil
from collections.abc import Generator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Final

import msgspec

from anyvisor.agent.network.namespace import CommandError, run_ip, run_nft, run_tool
from anyvisor.agent.network.rules import POD_INTERFACE
from anyvisor.embedded.instance import Instance

NAMESPACES: Final = Path("/run/netns")
POOL: Final = IPv4Network("10.64.0.0/10")
"""Where instances take their networks from; away from the ranges that cluster tools take by default."""
PREFIX: Final = 22
BRIDGE: Final = "avb"
FORWARDING: Final = "/proc/sys/net/ipv4/conf/{}/forwarding"
_NEEDED: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}


class PodNetworkError(OSError):
    """A pod's network cannot be made; the message is a sentence for the pod."""


class Pod(msgspec.Struct, frozen=True):
    """One pod's part of the books. `ready` only when all of it was made."""

    address: str
    ready: bool = False


class Books(msgspec.Struct, frozen=True, rename="camel"):
    """Which network the instance has, and which pod has which of its addresses."""

    network: str = ""
    pods: dict[str, Pod] = {}


# Names and texts: pure


def bridge_name(instance: str) -> str:
    """The instance's bridge."""
    return f"{BRIDGE}{instance[:8]}"


def pod_name(instance: str, pod_uid: str) -> str:
    """The pod's namespace, and its link on the host: at most 15 characters."""
    return f"av{instance[:6]}{hashlib.sha256(pod_uid.encode()).hexdigest()[:7]}"


def table_name(instance: str) -> str:
    """The instance's table of address translation."""
    return f"anyvisor_{instance[:8]}"


def choose_network(instance: str, taken: list[IPv4Network]) -> IPv4Network:
    """A network for the instance that overlaps none of those that the host knows; always the same where it can."""
    count = 1 << (PREFIX - POOL.prefixlen)
    first = int.from_bytes(hashlib.sha256(instance.encode()).digest()[:4], "big") % count
    for step in range(count):
        start = int(POOL[0]) + ((first + step) % count << (32 - PREFIX))
        candidate = IPv4Network((start, PREFIX))
        if not any(candidate.overlaps(each) for each in taken):
            return candidate
    raise PodNetworkError(f"no network is free for pods in {POOL}; remove routes that nobody needs")


def choose_address(network: IPv4Network, taken: set[str]) -> IPv4Address:
    """A free address: neither the network's, the bridge's nor the broadcast address."""
    for number in range(2, network.num_addresses - 1):
        if str(network[number]) not in taken:
            return network[number]
    raise PodNetworkError(f"all {network.num_addresses - 3} addresses for pods are taken; delete virtual machines")


def bridge_batch(instance: str, network: IPv4Network, *, exists: bool) -> str:
    """Make the bridge, or set it up again."""
    name = bridge_name(instance)
    lines = [] if exists else [f"link add name {name} type bridge"]
    lines += [
        f"addr replace {network[1]}/{network.prefixlen} dev {name}",
        f"link set {name} addrgenmode none",
        f"link set {name} up",
    ]
    return "\n".join((*lines, ""))


def masquerade(instance: str, network: IPv4Network) -> str:
    """Pods reach the outside as the host does. Replaces the table as a whole."""
    table, bridge = table_name(instance), bridge_name(instance)
    return f"""
table ip {table}
delete table ip {table}
table ip {table} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {network} oifname != "{bridge}" masquerade
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname "{bridge}" accept
    oifname "{bridge}" accept
  }}
}}
"""


def pod_batch(instance: str, pod_uid: str, mtu: int) -> str:
    """The pod's namespace and its link to the bridge."""
    name = pod_name(instance, pod_uid)
    return "\n".join(
        (
            f"netns add {name}",
            f"link add {name} mtu {mtu} type veth peer name {POD_INTERFACE} mtu {mtu} netns {name}",
            f"link set {name} master {bridge_name(instance)} addrgenmode none",
            f"link set {name} up",
            "",
        )
    )


def inner_batch(address: IPv4Address, network: IPv4Network) -> str:
    """The same from within the pod's namespace."""
    return "\n".join(
        (
            "link set lo up",
            f"addr add {address}/{network.prefixlen} dev {POD_INTERFACE}",
            f"link set {POD_INTERFACE} up",
            f"route add default via {network[1]}",
            "",
        )
    )


# What is there


def problem() -> str:
    """Why pods cannot have networks of their own here; empty when they can."""
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool, path=f"{os.defpath}:/usr/sbin:/sbin") is None]
    if missing:
        return f"{' and '.join(missing)} missing (Debian: apt-get install iproute2 nftables)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened (modprobe tun)"
    effective = _effective_capabilities()
    lacking = [name for name, bit in _NEEDED.items() if not effective >> bit & 1]
    return f"{' and '.join(lacking)} missing" if lacking else ""


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def pod_networks(instance: Instance) -> "BridgedPods | None":
    """Namespaces for the pods of an instance, or None where the host does not allow them."""
    return None if problem() else BridgedPods(instance.id, instance.run_dir / "podnetwork.json")


class BridgedPods:
    """The pods' networks of one instance. All methods are idempotent, also after a crash in the middle."""

    def __init__(self, instance: str, file: Path) -> None:
        self._instance, self._file = instance, file
        self._opened = file.parent.parent / "forwarding"
        """A file for each interface of the host on which forwarding was off before the first instance came."""

    async def create(self, pod_uid: str) -> str:
        """Make the pod's namespace, or find it again; the pod's address. Raises PodNetworkError."""
        return await asyncio.to_thread(self._create, pod_uid)

    async def namespace(self, pod_uid: str) -> int | None:
        """A descriptor of it, the caller's to close; None when there is none."""
        return await asyncio.to_thread(self._namespace, pod_uid)

    async def destroy(self, pod_uid: str) -> None:
        """Remove it; nothing when there is none."""
        await asyncio.to_thread(self._destroy, pod_uid)

    async def clean_up(self) -> None:
        """Remove everything of the instance: its pods', the bridge, the translation, what was opened on the host."""
        await asyncio.to_thread(self._clean_up)

    def _create(self, pod_uid: str) -> str:
        with self._locked() as books, _reported():
            pod = books.pods.get(pod_uid)
            if pod is not None and pod.ready and self._path(pod_uid).exists():
                return pod.address
            books, network = self._with_bridge(books)
            self._remove_pod(pod_uid)
            taken = {each.address for uid, each in books.pods.items() if uid != pod_uid}
            address = choose_address(network, taken)
            books = self._write(books, pod_uid, Pod(str(address)))
            run_ip(pod_batch(self._instance, pod_uid, _uplink_mtu()))
            run_tool(["ip", "-n", pod_name(self._instance, pod_uid), "-batch", "-"], inner_batch(address, network))
            self._write(books, pod_uid, Pod(str(address), ready=True))
            return str(address)

    def _namespace(self, pod_uid: str) -> int | None:
        try:
            return os.open(self._path(pod_uid), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def _destroy(self, pod_uid: str) -> None:
        with self._locked() as books, _reported():
            self._remove_pod(pod_uid)
            if pod_uid in books.pods:
                self._write(books, pod_uid, None)

    def _clean_up(self) -> None:
        with self._locked(), _reported():
            for name in _namespaces(self._instance):
                _remove_namespace(name)
            name = bridge_name(self._instance)
            if _exists(name):
                run_ip(f"link delete {name}\n")
            table = table_name(self._instance)
            run_nft(f"table ip {table}\ndelete table ip {table}\n")
            self._close_forwarding()
            self._file.unlink(missing_ok=True)

    def _with_bridge(self, books: Books) -> tuple[Books, IPv4Network]:
        """The books with a network, and the bridge up. Found again, it is left as it is."""
        exists = _exists(bridge_name(self._instance))
        if books.network and exists:
            return books, IPv4Network(books.network)
        for name in _namespaces(self._instance):
            if not any(name == pod_name(self._instance, uid) for uid in books.pods):
                _remove_namespace(name)
        network = IPv4Network(books.network) if books.network else choose_network(self._instance, _routes())
        books = msgspec.structs.replace(books, network=str(network))
        self._store(books)
        run_ip(bridge_batch(self._instance, network, exists=exists))
        run_nft(masquerade(self._instance, network))
        self._open_forwarding()
        return books, network

    def _open_forwarding(self) -> None:
        """Let the host pass packets on between its interfaces and ours; noted first, so that it can be undone."""
        Path(FORWARDING.format(bridge_name(self._instance))).write_text("1")
        for name in _interfaces():
            setting = Path(FORWARDING.format(name))
            if not name.startswith(BRIDGE) and setting.read_text().strip() == "0":
                self._opened.mkdir(parents=True, exist_ok=True)
                (self._opened / name).touch()
                setting.write_text("1")

    def _close_forwarding(self) -> None:
        """Undo it, unless another instance still needs it."""
        others = any(name.startswith(BRIDGE) for name in os.listdir("/sys/class/net"))
        if others or not self._opened.is_dir():
            return
        for marker in self._opened.iterdir():
            with contextlib.suppress(FileNotFoundError):
                Path(FORWARDING.format(marker.name)).write_text("0")
            marker.unlink()
        self._opened.rmdir()

    def _remove_pod(self, pod_uid: str) -> None:
        _remove_namespace(pod_name(self._instance, pod_uid))

    def _path(self, pod_uid: str) -> Path:
        return NAMESPACES / pod_name(self._instance, pod_uid)

    # The books

    @contextlib.contextmanager
    def _locked(self) -> Generator[Books]:
        """The books, ours alone for the time of the block."""
        self._file.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        lock = os.open(self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._read()
        finally:
            os.close(lock)

    def _read(self) -> Books:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Books)
        except FileNotFoundError:
            return Books()
        except msgspec.DecodeError as error:
            raise PodNetworkError(
                f"{self._file} is damaged ({error}): stop all virtual machines, then remove it"
            ) from error

    def _write(self, books: Books, pod_uid: str, pod: Pod | None) -> Books:
        pods = {uid: each for uid, each in books.pods.items() if uid != pod_uid}
        if pod is not None:
            pods[pod_uid] = pod
        books = msgspec.structs.replace(books, pods=pods)
        self._store(books)
        return books

    def _store(self, books: Books) -> None:
        """Whole or not at all. The runtime directory does not outlive a reboot, as namespaces don't: no fsync."""
        unfinished = self._file.with_suffix(".new")
        unfinished.write_bytes(msgspec.json.encode(books))
        unfinished.replace(self._file)


@contextlib.contextmanager
def _reported() -> Generator[None]:
    try:
        yield
    except CommandError as error:
        raise PodNetworkError(f"the pod's network could not be made: {error}") from error


def _namespaces(instance: str) -> list[str]:
    prefix = pod_name(instance, "")[: len("av") + 6]
    try:
        return [name for name in os.listdir(NAMESPACES) if name.startswith(prefix)]
    except FileNotFoundError:
        return []


def _remove_namespace(name: str) -> None:
    """The namespace and the link to it. A process that still runs in the namespace keeps it, but not its link."""
    if _exists(name):
        run_ip(f"link delete {name}\n")
    if (NAMESPACES / name).exists():
        run_ip(f"netns delete {name}\n")


def _exists(interface: str) -> bool:
    return Path("/sys/class/net", interface).exists()


def _routes() -> list[IPv4Network]:
    """The networks that the host has routes to, but for the default one."""
    found: list[IPv4Network] = []
    for route in _ip_json("route", "show", "table", "all"):
        with contextlib.suppress(ValueError):
            network = ipaddress.IPv4Network(str(route.get("dst")), strict=False)
            if network.prefixlen > 0:
                found.append(network)
    return found


def _interfaces(*selector: str) -> list[str]:
    """The interfaces that routes of the host's main table use."""
    names = {str(route.get("dev")) for route in _ip_json("route", "show", *selector)}
    return sorted(name for name in names if _exists(name))


def _uplink_mtu() -> int:
    """The smallest MTU on the way out, so that a guest's packets need no splitting."""
    sizes = [int(Path("/sys/class/net", name, "mtu").read_text()) for name in _interfaces("default")]
    return min(sizes, default=1500)


def _ip_json(*arguments: str) -> list[dict[str, Any]]:
    return json.loads(run_tool(["ip", "-4", "-j", *arguments]) or "[]")

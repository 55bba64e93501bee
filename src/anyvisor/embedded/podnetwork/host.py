"""What the host has and allows: tools and rights, interfaces, routes, namespaces, forwarding."""

import contextlib
import ipaddress
import json
import os
import shutil
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

from anyvisor.agent.network.namespace import run_ip, run_tools
from anyvisor.embedded.podnetwork.plans import BRIDGE, name_prefix

NAMESPACES: Final = Path("/run/netns")
_FORWARDING: Final = "/proc/sys/net/ipv4/conf/{}/forwarding"
_LOOPBACK: Final = "/proc/sys/net/ipv4/conf/{}/route_localnet"
"""So that a node port answers on 127.0.0.1, too; the instance's rules keep pods from the host's loopback."""
_NEEDED: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}


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


def namespaces(instance: str) -> list[str]:
    """The instance's namespaces, also those that no book knows."""
    try:
        return [name for name in os.listdir(NAMESPACES) if name.startswith(name_prefix(instance))]
    except FileNotFoundError:
        return []


def remove_namespace(name: str) -> None:
    """The namespace and the link to it. A process that still runs in the namespace keeps it, but not its link."""
    if exists(name):
        run_ip(f"link delete {name}\n")
    if (NAMESPACES / name).exists():
        run_ip(f"netns delete {name}\n")


def exists(interface: str) -> bool:
    """Whether the host has the interface."""
    return Path("/sys/class/net", interface).exists()


def routes() -> list[IPv4Network]:
    """The networks that the host has routes to, but for the default one."""
    found: list[IPv4Network] = []
    for route in _ip_json("route", "show", "table", "all"):
        with contextlib.suppress(ValueError):
            network = ipaddress.IPv4Network(str(route.get("dst")), strict=False)
            if network.prefixlen > 0:
                found.append(network)
    return found


def known_networks() -> list[IPv4Network]:
    """The same as the kernel's main table shows it to everybody, without a tool."""
    try:
        lines = Path("/proc/net/route").read_text().splitlines()[1:]
    except OSError:
        return []
    found: list[IPv4Network] = []
    for fields in (line.split() for line in lines):
        start, mask = (int.from_bytes(bytes.fromhex(fields[at]), "little") for at in (1, 7))
        if mask:
            found.append(IPv4Network((start, mask.bit_count())))
    return found


def interfaces(*selector: str) -> list[str]:
    """The interfaces that routes of the host's main table use."""
    names = {str(route.get("dev")) for route in _ip_json("route", "show", *selector)}
    return sorted(name for name in names if exists(name))


def uplink_mtu() -> int:
    """The smallest MTU on the way out, so that a guest's packets need no splitting."""
    sizes = [int(Path("/sys/class/net", name, "mtu").read_text()) for name in interfaces("default")]
    return min(sizes, default=1500)


def _ip_json(*arguments: str) -> list[dict[str, Any]]:
    [output] = run_tools((("ip", "-4", "-j", *arguments), ""))
    return json.loads(output or "[]")


def open_forwarding(bridge: str, noted: Path) -> None:
    """Let the host pass packets on between its interfaces and the bridge; noted first, so that it can be undone.

    The bridge's own settings go with it.
    """
    Path(_FORWARDING.format(bridge)).write_text("1")
    Path(_LOOPBACK.format(bridge)).write_text("1")
    for name in interfaces():
        setting = Path(_FORWARDING.format(name))
        if not name.startswith(BRIDGE) and setting.read_text().strip() == "0":
            noted.mkdir(parents=True, exist_ok=True)
            (noted / name).touch()
            setting.write_text("1")


def close_forwarding(noted: Path) -> None:
    """Undo it, unless another instance still needs it."""
    if any(name.startswith(BRIDGE) for name in os.listdir("/sys/class/net")) or not noted.is_dir():
        return
    for marker in noted.iterdir():
        with contextlib.suppress(FileNotFoundError):
            Path(_FORWARDING.format(marker.name)).write_text("0")
        marker.unlink()
    noted.rmdir()

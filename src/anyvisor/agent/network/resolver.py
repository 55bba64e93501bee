"""Which name servers the guest is told. Pure, but for `read`.

A server on the host's loopback (systemd-resolved's stub, a local dnsmasq) cannot be reached from the guest: then the
servers behind the stub are taken where they are known, else the agent relays (dns.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from anyvisor.api.meta import Json, object_at

RESOLV_CONF: Final = Path("/etc/resolv.conf")
BEHIND_STUB: Final = Path("/run/systemd/resolve/resolv.conf")
MAX_SERVERS: Final = 3
MAX_SEARCH: Final = 6
MAX_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Resolver:
    """The host's resolver, as far as a guest can use it."""

    servers: tuple[IPv4Address, ...] = ()
    """Reachable from a guest."""
    relayed: IPv4Address | IPv6Address | None = None
    """Reachable only from the host; None when there are servers, or no resolver at all."""
    search: tuple[str, ...] = ()


def choose(texts: Sequence[str]) -> Resolver:
    """From the contents of resolv.conf files, the host's own first: the first reachable servers win."""
    search: tuple[str, ...] = ()
    stub: IPv4Address | IPv6Address | None = None
    for text in texts:
        servers, found = _parse(text)
        search = search or found
        outside = tuple(each for each in servers if isinstance(each, IPv4Address) and not each.is_loopback)
        if outside:
            return Resolver(outside[:MAX_SERVERS], None, search)
        stub = stub or next(iter(servers), None)
    return Resolver((), stub, search)


def _parse(text: str) -> tuple[list[IPv4Address | IPv6Address], tuple[str, ...]]:
    servers: list[IPv4Address | IPv6Address] = []
    search: tuple[str, ...] = ()
    for line in text.splitlines():
        words = line.split("#", 1)[0].split(";", 1)[0].split()
        if len(words) >= 2 and words[0] == "nameserver":
            try:
                servers.append(ip_address(words[1].split("%", 1)[0]))
            except ValueError:
                continue
        elif len(words) >= 2 and words[0] in ("search", "domain"):
            search = tuple(word for word in words[1:] if word != ".")[:MAX_SEARCH]
    return servers, search


def guest_resolver(spec: Json, cluster: Resolver | None, host: Resolver) -> Resolver:
    """What a guest is told by the pod's DNS policy and configuration.

    https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy
    """
    policy = str(spec.get("dnsPolicy") or "ClusterFirst")
    base = {"None": Resolver(), "Default": host}.get(policy, cluster or host)
    config = object_at(spec, "dnsConfig")
    named: list[IPv4Address] = []
    for text in config.get("nameservers") or ():
        try:
            named.append(IPv4Address(str(text)))
        except ValueError:
            continue  # the pod network has no other family
    servers = tuple(dict.fromkeys((*base.servers, *named)))[:MAX_SERVERS]
    search = tuple(dict.fromkeys((*base.search, *(str(each) for each in config.get("searches") or ()))))
    return Resolver(servers, None if named else base.relayed, search)


def first(path: Path = RESOLV_CONF) -> IPv4Address | IPv6Address | None:
    """The server that the host itself asks first, wherever it is; None when there is none."""
    try:
        with path.open(errors="replace") as file:
            return next(iter(_parse(file.read(MAX_BYTES))[0]), None)
    except OSError:
        return None


def read(paths: Sequence[Path] = (RESOLV_CONF, BEHIND_STUB)) -> Resolver:
    """The resolver of this host now."""
    texts: list[str] = []
    for path in paths:
        try:
            with path.open(errors="replace") as file:
                texts.append(file.read(MAX_BYTES))
        except OSError:
            continue
    return choose(texts)

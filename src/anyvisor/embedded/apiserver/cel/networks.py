"""Kubernetes' functions on IP addresses, CIDRs and URLs."""

import ipaddress
from typing import Any
from urllib.parse import SplitResult, urlsplit

from anyvisor.embedded.apiserver.cel.errors import CelError
from anyvisor.embedded.apiserver.cel.values import as_text


def to_ip(value: Any) -> Any:
    try:
        return ipaddress.ip_address(as_text(value)) if isinstance(value, str) else value
    except ValueError as error:
        raise CelError(f"cannot read the IP address {value!r}") from error


def to_cidr(value: Any) -> Any:
    try:
        if isinstance(value, str) and "/" not in value:
            raise CelError(f"cannot read the CIDR {value!r}")
        return ipaddress.ip_interface(as_text(value)).network if isinstance(value, str) else value
    except ValueError as error:
        raise CelError(f"cannot read the CIDR {value!r}") from error


def contains_ip(network: Any, address: Any) -> bool:
    return to_ip(address) in to_cidr(network)


def contains_cidr(network: Any, other: Any) -> bool:
    outer, inner = to_cidr(network), to_cidr(other)
    return outer.version == inner.version and inner.subnet_of(outer)


def to_url(value: Any) -> SplitResult:
    if isinstance(value, SplitResult):
        return value
    text = as_text(value)
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise CelError(f"cannot read the URL {text!r}") from error
    if not (parts.scheme or text.startswith("/")) or " " in text:
        raise CelError(f"cannot read the URL {text!r}")
    return parts


def link_local_multicast(value: Any) -> bool:
    address = to_ip(value)
    return address in ipaddress.ip_network("224.0.0.0/24" if address.version == 4 else "ff02::/16")


def global_unicast(value: Any) -> bool:
    address = to_ip(value)
    return not (address.is_multicast or address.is_loopback or address.is_unspecified or address.is_link_local)

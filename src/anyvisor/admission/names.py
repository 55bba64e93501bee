"""Grammars of the short texts in a VM: names, and MAC, IP and PCI addresses."""

import ipaddress
import re

from anyvisor.api import names

LABEL_RULE = "1 to 63 lower-case letters, digits or '-', beginning and ending with a letter or digit"
SUBDOMAIN_RULE = "at most 253 characters: parts of lower-case letters, digits and '-', joined by dots"

_PORT_NAME = re.compile(r"(?=[a-z0-9-]{1,15}\Z)(?=[0-9-]*[a-z])[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_MAC = re.compile(
    r"(?:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}|[0-9a-fA-F]{2}(?:-[0-9a-fA-F]{2}){5}|[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4}){2})\Z"
)
_PCI_ADDRESS = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\Z")
_LONGEST_IP = 45


def is_label(name: str) -> bool:
    """Whether the name is a DNS-1123 label."""
    return not names.dns1123_label(name)


def is_subdomain(name: str) -> bool:
    """Whether the name is a DNS-1123 subdomain."""
    return not names.dns1123_subdomain(name)


def is_label_key(key: str) -> bool:
    """Whether the key may be the key of a label."""
    return not names.qualified_name(key)


def is_label_value(value: str) -> bool:
    """Whether the value may be the value of a label."""
    return not names.label_value(value)


def is_port_name(name: str) -> bool:
    """Whether the name is an RFC 6335 service name, in lower case."""
    return _PORT_NAME.match(name) is not None


def is_mac(address: str) -> bool:
    """Whether the address is a 48-bit MAC in one of the three usual notations."""
    return _MAC.match(address) is not None


def is_pci_address(address: str) -> bool:
    """Whether the address is written DDDD:BB:SS.F (hexadecimal, function 0-7)."""
    return _PCI_ADDRESS.match(address) is not None


def is_ip(address: str) -> bool:
    """Whether the address is an IPv4 or IPv6 address without a zone."""
    return _ip(address) is not None


def is_ipv4(address: str) -> bool:
    """Whether the address is an IPv4 address (also written as an IPv4-mapped IPv6 address)."""
    parsed = _ip(address)
    return isinstance(parsed, ipaddress.IPv4Address) or (parsed is not None and parsed.ipv4_mapped is not None)


def _ip(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if "%" in address or len(address) > _LONGEST_IP:
        return None
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None

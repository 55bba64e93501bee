"""Names: what Kubernetes accepts as one, and the ones that this project derives."""

import base64
import hashlib
import re
from typing import Final

LABEL_MAX: Final = 63
SUBDOMAIN_MAX: Final = 253
HASH_LENGTH: Final = 8
VOLUMES_PATH: Final = "/run/volumes"

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_QUALIFIED})?"

_LABEL_RE: Final = re.compile(_LABEL)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_LABEL_1035_RE: Final = re.compile(_LABEL_1035)
_QUALIFIED_RE: Final = re.compile(_QUALIFIED)
_LABEL_VALUE_RE: Final = re.compile(_LABEL_VALUE)


INTERFACE_HASH: Final = 11
"""Digits of the hash in a pod interface's name: 15, what the kernel takes, less a prefix and a suffix."""


def secondary_interface(network: str) -> str:
    """The pod's interface on a network beside its own: made from the name, so that it stays when others come and go."""
    return f"pod{hashlib.sha256(network.encode()).hexdigest()[:INTERFACE_HASH]}"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _form(what: str, examples: tuple[str, ...], pattern: str) -> str:
    shown = ",  or ".join(f"'{example}'" for example in examples)
    return f"{what} (e.g. {shown}, regex used for validation is '{pattern}')"


_LABEL_MESSAGE: Final = _form(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character",
    ("my-name", "123-abc"),
    _LABEL,
)
_SUBDOMAIN_MESSAGE: Final = _form(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character",
    ("example.com",),
    _SUBDOMAIN,
)
_LABEL_1035_MESSAGE: Final = _form(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character",
    ("my-name", "abc-123"),
    _LABEL_1035,
)
_QUALIFIED_MESSAGE: Final = _form(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    ("MyName", "my.name", "123-abc"),
    _QUALIFIED,
)
_QUALIFIED_PREFIX: Final = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_LABEL_VALUE_MESSAGE: Final = _form(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character",
    ("MyValue", "my_value", "12345"),
    _LABEL_VALUE,
)


def dns1123_label(value: str) -> list[str]:
    """What is wrong with a DNS-1123 label, in Kubernetes' words; empty when nothing is."""
    return _check(value, LABEL_MAX, _LABEL_RE, _LABEL_MESSAGE)


def dns1123_subdomain(value: str) -> list[str]:
    """What is wrong with a DNS-1123 subdomain (most object names); empty when nothing is."""
    return _check(value, SUBDOMAIN_MAX, _SUBDOMAIN_RE, _SUBDOMAIN_MESSAGE)


def dns1035_label(value: str) -> list[str]:
    """What is wrong with a DNS-1035 label (Service names); empty when nothing is."""
    return _check(value, LABEL_MAX, _LABEL_1035_RE, _LABEL_1035_MESSAGE)


def label_value(value: str) -> list[str]:
    """What is wrong with the value of a label; empty when nothing is."""
    return _check(value, LABEL_MAX, _LABEL_VALUE_RE, _LABEL_VALUE_MESSAGE)


def qualified_name(value: str) -> list[str]:
    """What is wrong with a label or annotation key (`prefix/name`); empty when nothing is."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        return [f"a qualified name {_QUALIFIED_MESSAGE} {_QUALIFIED_PREFIX}"]
    problems: list[str] = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [f"prefix part {problem}" for problem in dns1123_subdomain(prefix)]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > LABEL_MAX:
        problems.append(f"name part {_too_long(LABEL_MAX)}")
    if len(name) <= SUBDOMAIN_MAX and not _QUALIFIED_RE.fullmatch(name):
        problems.append(f"name part {_QUALIFIED_MESSAGE}")
    return problems


def _check(value: str, limit: int, pattern: re.Pattern[str], message: str) -> list[str]:
    problems = [_too_long(limit)] if len(value) > limit else []
    # The length is checked on its own, so that a hostile megabyte is not also matched against a pattern.
    if len(value) <= SUBDOMAIN_MAX and not pattern.fullmatch(value):
        problems.append(message)
    return problems


def short_hash(*parts: str, length: int = HASH_LENGTH) -> str:
    """A stable lower-case hash of the parts that may stand in any name."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:length]


def bounded(prefix: str, suffix: str, limit: int = LABEL_MAX) -> str:
    """`prefix-suffix` with the prefix cut so that the whole is a valid name of at most `limit` characters."""
    kept = prefix[: limit - len(suffix) - 1].rstrip("-.")
    return f"{kept}-{suffix}"


def launcher_pod_name(vmi_name: str, vmi_uid: str, attempt: int = 0) -> str:
    """The one name that the launcher pod of this VMI and attempt can have.

    Deterministic, so that two acting controllers create one pod. At most 63 characters.
    """
    return bounded(f"virt-launcher-{vmi_name}", short_hash(vmi_uid, str(attempt)))


def vmi_id_label(vmi_name: str) -> str:
    """The value of label `vmi.kubevirt.io/id`: the name, or its head and a hash when it is too long.

    SHA-1 as in KubeVirt, since clients compute the same value to select a VMI's pods.
    """
    if len(vmi_name) <= LABEL_MAX:
        return vmi_name
    digest = hashlib.sha1(vmi_name.encode(), usedforsecurity=False).hexdigest()
    return f"{vmi_name[: LABEL_MAX - 9]}-{digest[:8]}"


def volume_path(name: str) -> str:
    """Where the launcher pod mounts one of its volumes."""
    return f"{VOLUMES_PATH}/{name}"

"""What a claim is to be filled with, read from DataVolumes and data sources. Pure.

https://github.com/kubevirt/containerized-data-importer/blob/main/doc/datavolumes.md
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.embedded.images.reference import normalize
from anyvisor.embedded.imports.kinds import CLAIM_KIND

_DOCKER: Final = "docker://"
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_ELSEWHERE: Final[Mapping[str, str]] = {
    "upload": "uploads are not served; bring the file here by `anyvisor image import FILE --name REF`, "
    "and name it as registry.url docker://REF",
    "snapshot": "volume snapshots are not served; copy a claim by source.pvc",
    **dict.fromkeys(
        ("gcs", "s3", "imageio", "vddk"),
        "this source is not served; fetch the image by http, or as a file by `anyvisor image import`",
    ),
}


class SourceError(Exception):
    """A source that cannot be used: the field, and a sentence with the next step."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(f"{field} {sentence}")
        self.field = field
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Blank:
    """An empty disk."""


@dataclass(frozen=True, slots=True)
class FromRegistry:
    """The disk of a container image."""

    reference: str
    secret: str = ""


@dataclass(frozen=True, slots=True)
class FromAddress:
    """A disk at an HTTP address. Secrets and the ConfigMap are of the claim's namespace."""

    url: str
    secret: str = ""
    headers: tuple[str, ...] = ()
    secret_headers: tuple[str, ...] = ()
    certificates: str = ""


@dataclass(frozen=True, slots=True)
class FromClaim:
    """Another claim of the same namespace."""

    name: str


Source = Blank | FromRegistry | FromAddress | FromClaim


def of_data_volume(spec: Json, namespace: str) -> Source | None:
    """The source of a DataVolume; None where its claim names one itself. Raises SourceError."""
    if text_at(spec, "contentType") == "archive":
        raise SourceError("spec.contentType", "archives are not unpacked; leave it out, and use a disk image")
    if spec.get("checkpoints"):
        raise SourceError("spec.checkpoints", "imports in several steps are not served; leave them out")
    if spec.get("sourceRef"):
        raise SourceError("spec.sourceRef", "DataSources are not served; name the source itself under spec.source")
    if spec.get("source") is None:
        return None
    return read(object_at(spec, "source"), "spec.source", namespace)


def of_import(spec: Json) -> Source:
    """The source of a VolumeImportSource. Raises SourceError."""
    if text_at(spec, "contentType") == "archive":
        raise SourceError("spec.contentType", "archives are not unpacked; leave it out, and use a disk image")
    return read(object_at(spec, "source"), "spec.source", "")


def of_clone(spec: Json) -> Source:
    """The source of a VolumeCloneSource. Raises SourceError."""
    kind, name = text_at(spec, "source", "kind"), text_at(spec, "source", "name")
    if kind != CLAIM_KIND or not name:
        raise SourceError("spec.source", f"a {kind or 'nameless source'} is not copied; name a {CLAIM_KIND}")
    return FromClaim(name)


def read(source: Json, at: str, namespace: str) -> Source:
    """One source out of the kinds that there are. Raises SourceError."""
    named = [kind for kind, value in source.items() if value is not None]
    if len(named) != 1:
        told = f"has {', '.join(sorted(named))}; keep one" if named else "is empty; name one, such as registry or blank"
        raise SourceError(at, told)
    kind = named[0]
    if kind not in _READERS:
        raise SourceError(f"{at}.{kind}", _ELSEWHERE.get(kind, "this source is not known; use registry or http"))
    return _READERS[kind](object_at(source, kind), f"{at}.{kind}", namespace)


def _blank(_source: Json, _at: str, _namespace: str) -> Source:
    return Blank()


def _registry(source: Json, at: str, _namespace: str) -> Source:
    for field, remedy in (
        ("imageStream", "image streams are not served; give url docker://HOST/NAME:TAG"),
        ("certConfigMap", "name the registry's authority in a registries.conf of the data directory instead"),
    ):
        if source.get(field):
            raise SourceError(f"{at}.{field}", remedy)
    if text_at(source, "platform", "architecture"):
        raise SourceError(f"{at}.platform", "this machine's own architecture is taken; leave it out")
    url = text_at(source, "url")
    reference = url.removeprefix(_DOCKER)
    if reference == url:
        raise SourceError(f"{at}.url", f"{url[:200]!r} is not read; give docker://NAME[:TAG] or docker://HOST/NAME:TAG")
    try:
        normalize(reference)
    except ImageError as error:
        raise SourceError(f"{at}.url", str(error)) from error
    return FromRegistry(reference, text_at(source, "secretRef"))


def _http(source: Json, at: str, _namespace: str) -> Source:
    url = text_at(source, "url")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise SourceError(f"{at}.url", f"{url[:200]!r} is no address: {error}; give http(s)://HOST/PATH") from error
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or re.search(r"[\s\0]", url):
        raise SourceError(f"{at}.url", f"{url[:200]!r} is no address; give http(s)://HOST/PATH")
    if parts.username is not None:
        raise SourceError(f"{at}.url", "holds a password that everybody could read; use secretRef")
    headers = tuple(str(each) for each in list_at(source, "extraHeaders"))
    for index, header in enumerate(headers):
        if not _HEADER.fullmatch(header):
            raise SourceError(f"{at}.extraHeaders[{index}]", "is no header; write `Name: value`")
    secret_headers = tuple(str(each) for each in list_at(source, "secretExtraHeaders"))
    return FromAddress(url, text_at(source, "secretRef"), headers, secret_headers, text_at(source, "certConfigMap"))


def header(line: str) -> tuple[str, str] | None:
    """Name and value of a header line, None for what is none."""
    found = _HEADER.fullmatch(line.strip())
    return (found[1], found[2].strip()) if found else None


def _claim(source: Json, at: str, namespace: str) -> Source:
    name, space = text_at(source, "name"), text_at(source, "namespace")
    if not name:
        raise SourceError(f"{at}.name", "is missing; name a claim of this namespace")
    if space not in ("", namespace):
        raise SourceError(f"{at}.namespace", f"claims are copied within a namespace; make it in {space!r} instead")
    return FromClaim(name)


_READERS: Final[Mapping[str, Callable[[Json, str, str], Source]]] = {
    "blank": _blank,
    "registry": _registry,
    "http": _http,
    "pvc": _claim,
}

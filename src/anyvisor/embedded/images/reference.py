"""Names of images: https://github.com/distribution/reference: [host[:port]/]path[:tag][@digest]."""

import re

from anyvisor.agent.volumes.qcow2 import ImageError

_REFERENCE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9.-]*(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_MAX_LENGTH = 512
_HUB = "docker.io"


def normalize(reference: str) -> str:
    """The reference with the tag `latest` where it names neither tag nor digest.

    Raises:
        ImageError: it is no image reference.
    """
    if len(reference) > _MAX_LENGTH or not _REFERENCE.fullmatch(reference):
        raise ImageError(f"{reference[:80]!r} is no image name: use NAME[:TAG] or HOST/NAME[:TAG]")
    if "@" in reference or ":" in reference.rsplit("/", 1)[-1]:
        return reference
    return f"{reference}:latest"


def repository(reference: str) -> str:
    """The reference's `HOST/PATH` without tag and digest, completed as every container tool completes it.

    A first part without dot, colon and not `localhost` is no host: the name is then the Docker Hub's.
    """
    name = normalize(reference).split("@", 1)[0]
    head, slash, last = name.rpartition("/")
    path = f"{head}{slash}{last.split(':', 1)[0]}"
    host, slash, _ = path.partition("/")
    if not slash:
        return f"{_HUB}/library/{path}"
    if "." in host or ":" in host or host == "localhost":
        return path
    return f"{_HUB}/{path}"


def source(reference: str) -> str:
    """The reference with its host, as a registry client takes it: by its digest where it names one, else by its tag."""
    name, _, digest = normalize(reference).partition("@")
    return f"{repository(reference)}@{digest}" if digest else f"{repository(reference)}:{name.rsplit(':', 1)[-1]}"

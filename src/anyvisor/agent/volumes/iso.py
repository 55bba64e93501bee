"""An ISO 9660 image of small files, with Joliet and Rock Ridge names: what disks of configuration data are made of."""

import io
import posixpath
from collections.abc import Mapping
from typing import Final

MAX_BYTES: Final = 4 * 1024 * 1024
"""What the files of one medium may hold together: a Secret or ConfigMap holds at most 1 MiB."""
MAX_LABEL: Final = 32
JOLIET_NAME: Final = 64
"""Characters of a name that Windows reads; longer names are cut there, and whole for all others."""


class IsoError(ValueError):
    """The files do not fit on a medium; the message says why."""


def build(label: str, files: Mapping[str, bytes]) -> bytes:
    """The image with this volume label; `files` by their relative path.

    Raises:
        IsoError: too much data, or a label that no volume can have.
    """
    total = sum(len(content) for content in files.values())
    if total > MAX_BYTES:
        raise IsoError(f"it holds {total} bytes, and a disk made of it at most {MAX_BYTES}")
    if len(label) > MAX_LABEL or not label.isascii() or not label.isprintable():
        raise IsoError(f"the volume label {label[:60]!r} must be up to {MAX_LABEL} printable ASCII characters")
    import pycdlib

    image = pycdlib.PyCdlib()
    image.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=label)
    places = _Places()
    for path in sorted(files):
        for directory in _parents(path):
            if directory not in places.short:
                short = places.add(directory, "D")
                rr_name = posixpath.basename(directory)
                image.add_directory(short, rr_name=rr_name, joliet_path=places.joliet[directory])
        short, content = places.add(path, "F"), files[path]
        name = posixpath.basename(path)
        image.add_fp(io.BytesIO(content), len(content), f"{short}.;1", rr_name=name, joliet_path=places.joliet[path])
    out = io.BytesIO()
    image.write_fp(out)
    image.close()
    return out.getvalue()


class _Places:
    """The 8.3 path and the Joliet path of each name."""

    def __init__(self) -> None:
        self.short: dict[str, str] = {"": ""}
        self.joliet: dict[str, str] = {"": ""}

    def add(self, path: str, kind: str) -> str:
        """Give `path` its places; its parents have theirs."""
        parent, name = posixpath.split(path)
        self.short[path] = f"{self.short[parent]}/{kind}{len(self.short):07d}"
        joliet = f"{self.joliet[parent]}/{name[:JOLIET_NAME]}"
        if joliet in self.joliet.values():
            raise IsoError(f"two names begin with the same {JOLIET_NAME} characters {name[:JOLIET_NAME]!r}; rename one")
        self.joliet[path] = joliet
        return self.short[path]


def _parents(path: str) -> list[str]:
    """The directories above, the outermost first."""
    steps = path.split("/")[:-1]
    return ["/".join(steps[: count + 1]) for count in range(len(steps))]

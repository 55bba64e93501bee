"""UEFI firmware on this node, found by the descriptors that distributions install for QEMU.

Their form: docs/interop/firmware.json in QEMU's documentation. A file in a later directory replaces one of the same
name in an earlier; an empty one hides it.
"""

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

DIRECTORIES: Final = (Path("/usr/share/qemu/firmware"), Path("/etc/qemu/firmware"))
INSTALL: Final = "apt-get install ovmf"
ARCHITECTURE: Final = "x86_64"
MACHINE: Final = "pc-q35-7.2"
MAX_DESCRIPTOR_BYTES: Final = 64 << 10
MAX_STORE_BYTES: Final = 2 << 20
"""Of a variable store; what QEMU maps below 4 GiB is 8 MiB with the code."""
_SECURE: Final = frozenset({"secure-boot", "enrolled-keys", "requires-smm"})


class Uefi(msgspec.Struct, frozen=True):
    """One firmware: its code, and the template of its variable store."""

    code: str
    template: str


class _File(msgspec.Struct):
    filename: str
    format: str = "raw"


class _Mapping(msgspec.Struct, rename="kebab"):
    device: str = ""
    mode: str = "split"
    executable: _File | None = None
    nvram_template: _File | None = None


class _Target(msgspec.Struct):
    architecture: str
    machines: list[str]


class _Descriptor(msgspec.Struct, rename="kebab"):
    interface_types: list[str]
    mapping: _Mapping
    targets: list[_Target] = []
    features: list[str] = []


def find(directories: Iterable[Path] = DIRECTORIES) -> tuple[Uefi | None, Uefi | None]:
    """The plain firmware, and the one that starts only what the enrolled keys have signed; None for a missing one."""
    plain = secure = None
    for descriptor in _descriptors(directories):
        found = _usable(descriptor)
        if found is None:
            continue
        features = set(descriptor.features)
        if features >= _SECURE:
            secure = secure or found
        elif not features & _SECURE:
            plain = plain or found
    return plain, secure


def _descriptors(directories: Iterable[Path]) -> Iterator[_Descriptor]:
    files: dict[str, Path] = {}
    for directory in directories:
        files |= {path.name: path for path in directory.glob("*.json")}
    for name in sorted(files):
        try:
            if files[name].stat().st_size <= MAX_DESCRIPTOR_BYTES:
                yield msgspec.json.decode(files[name].read_bytes(), type=_Descriptor)
        except (OSError, msgspec.MsgspecError):
            continue  # an empty file hides one of the same name, and others' mistakes are not ours to report


def _usable(descriptor: _Descriptor) -> Uefi | None:
    mapping = descriptor.mapping
    code, template = mapping.executable, mapping.nvram_template
    if "uefi" not in descriptor.interface_types or (mapping.device, mapping.mode) != ("flash", "split"):
        return None
    if code is None or template is None or (code.format, template.format) != ("raw", "raw"):
        return None
    fits = any(
        target.architecture == ARCHITECTURE and any(fnmatch.fnmatchcase(MACHINE, glob) for glob in target.machines)
        for target in descriptor.targets
    )
    readable = all(Path(file.filename).is_file() for file in (code, template))
    return Uefi(code.filename, template.filename) if fits and readable else None


def fingerprint(directories: Iterable[Path] = DIRECTORIES) -> str:
    """Changes whenever a firmware is installed or removed."""
    return ",".join(_changed(directory) for directory in directories)


def _changed(directory: Path) -> str:
    try:
        return str(directory.stat().st_mtime_ns)
    except OSError:
        return ""


def read_template(uefi: Uefi) -> bytes:
    """A fresh variable store. Raises OSError."""
    with open(uefi.template, "rb") as file:
        content = file.read(MAX_STORE_BYTES + 1)
    if not content or len(content) > MAX_STORE_BYTES:
        raise OSError(f"{uefi.template} is no variable store: reinstall the firmware ({INSTALL})")
    return content


def problems(plain: Uefi | None, secure: Uefi | None) -> Mapping[str, str]:
    """What cannot be served for want of firmware: capability -> why, and what helps."""
    found: dict[str, str] = {}
    if plain is None:
        found["boot.uefi"] = f"no UEFI firmware is installed on this node: {INSTALL}"
    if secure is None:
        found["boot.uefi.secure"] = f"no UEFI firmware for secure boot is installed on this node: {INSTALL}"
    return found

"""Custom resource definitions of all served kinds.

`crds()` reads them from the package (`crds.json.z`), as making them from the models costs a server's start a fifth
of a second; `imports()` reads `imports.json.z`. `python -m anyvisor.api.crd [--check]` writes these files and
`deploy/crds/`, or fails when one is stale.
"""

import sys
import zlib
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from anyvisor.api.meta import Json

PACKED: Final = "crds.json.z"
PACKED_IMPORTS: Final = "imports.json.z"


def crds() -> list[Json]:
    """The definitions of all served kinds, as objects to create."""
    return _unpacked(PACKED)


def imports() -> list[Json]:
    """The definitions of the importer's kinds, for servers that have no importer of their own."""
    return _unpacked(PACKED_IMPORTS)


def _unpacked(file: str) -> list[Json]:
    packed = resources.files("anyvisor.api").joinpath(file).read_bytes()
    return msgspec.json.decode(zlib.decompress(packed), type=list[Json])


def generate_imports() -> list[Json]:
    """What `imports` reads, made from the models."""
    from anyvisor.api.definitions import definition
    from anyvisor.api.kinds import IMPORTS

    return [definition(kind) for kind in IMPORTS]


def generate() -> list[Json]:
    """The definitions of all served kinds, made from the models."""
    from anyvisor.api.definitions import definition
    from anyvisor.api.kinds import KINDS

    return [definition(kind) for kind in KINDS if kind.served]


def files(definitions: list[Json], root: Path) -> dict[Path, bytes]:
    """The files that hold the definitions in a source tree, with their content."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes every object in full: an alias is hard to read, and some tools refuse it."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    package = root / "src/anyvisor/api"
    found = {
        package / PACKED: _packed(definitions),
        package / PACKED_IMPORTS: _packed(generate_imports()),
    }
    for each in definitions:
        text: str = yaml.dump(each, Dumper=Dumper, sort_keys=False, width=110)  # pyright: ignore[reportUnknownMemberType] -- its stub
        found[root / "deploy/crds" / f"{each['metadata']['name']}.yaml"] = text.encode()
    return found


def _packed(definitions: list[Json]) -> bytes:
    return zlib.compress(msgspec.json.encode(definitions), 9)


def is_stale(path: Path, content: bytes) -> bool:
    """Whether a file does not hold the content; packed files are compared unpacked, as zlib's versions differ."""
    if not path.exists():
        return True
    present = path.read_bytes()
    if path.suffix == ".z":
        return zlib.decompress(present) != zlib.decompress(content)
    return present != content


def main(arguments: list[str]) -> int:
    """Write the files of this source tree, or with `--check` say which ones are stale."""
    root = Path(__file__).parents[3]
    wanted = files(generate(), root)
    stale = [path for path, content in wanted.items() if is_stale(path, content)]
    unknown = sorted(set((root / "deploy/crds").glob("*.yaml")) - set(wanted))
    if "--check" in arguments:
        for path in (*stale, *unknown):
            print(f"{path.relative_to(root)} is stale: run `make generated`", file=sys.stderr)
        return 1 if stale or unknown else 0
    for path in unknown:
        path.unlink()
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

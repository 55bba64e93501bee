"""Generate Python code from the proto files of the HRI and of the kubelet; `--check` fails when it is stale."""

import filecmp
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

SRC = Path(__file__).parent.parent / "src"
PACKAGES = {
    SRC / "anyvisor" / "hri" / "proto": SRC / "anyvisor" / "hri" / "v1",
    SRC / "anyvisor" / "cluster" / "proto": SRC / "anyvisor" / "cluster" / "kubelet",
}
"""Proto files, and the package of the code that is made of them."""


def generate(source: Path, out: Path) -> None:
    """Write the generated modules below `out`, in folders as the proto files are."""
    files = sorted(str(path.relative_to(source)) for path in source.rglob("*.proto"))
    arguments = [
        f"-I{source}",
        f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
        f"--plugin=protoc-gen-grpclib_python={Path(sys.executable).with_name('protoc-gen-grpclib_python')}",
        f"--python_out={out}",
        f"--pyi_out={out}",
        f"--grpclib_python_out={out}",
    ]
    if protoc.main(["protoc", *arguments, *files]) != 0:
        raise SystemExit("genproto: protoc refused the proto files")


def _update(source: Path, package: Path, *, check: bool) -> int:
    """Generate one package in place, or compare; how many files are stale."""
    with tempfile.TemporaryDirectory() as folder:
        generate(source, Path(folder))
        made = Path(folder) / package.relative_to(SRC)
        if check:
            names = [path.name for path in made.iterdir()]
            _, differing, missing = filecmp.cmpfiles(made, package, names, shallow=False)
            for name in differing + missing:
                print(f"genproto: {name} is stale; run `make proto`", file=sys.stderr)
            return len(differing + missing)
        package.mkdir(exist_ok=True)
        for path in made.iterdir():
            (package / path.name).write_bytes(path.read_bytes())
        (package / "__init__.py").write_text('"""Generated from ../proto; do not edit."""\n')
    return 0


def main() -> int:
    """Generate in place, or compare."""
    check = "--check" in sys.argv
    stale = [_update(source, package, check=check) for source, package in PACKAGES.items()]
    return 1 if any(stale) else 0


if __name__ == "__main__":
    sys.exit(main())

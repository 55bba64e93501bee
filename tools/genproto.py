"""Generate `src/anyvisor/hri/` code from the HRI's proto files; `--check` fails when the committed code is stale."""

import filecmp
import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

SRC = Path(__file__).parent.parent / "src"
PROTO = SRC / "anyvisor" / "hri" / "proto"
OUT = SRC / "anyvisor" / "hri" / "v1"


def generate(out: Path) -> None:
    """Write the generated modules below `out` (as `anyvisor/hri/v1/*.py`)."""
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    arguments = [
        f"-I{PROTO}",
        f"-I{Path(grpc_tools.__file__).parent / '_proto'}",
        f"--plugin=protoc-gen-grpclib_python={Path(sys.executable).with_name('protoc-gen-grpclib_python')}",
        f"--python_out={out}",
        f"--pyi_out={out}",
        f"--grpclib_python_out={out}",
    ]
    if protoc.main(["protoc", *arguments, *files]) != 0:
        raise SystemExit("genproto: protoc refused the proto files")


def main() -> int:
    """Generate in place, or compare."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        made = Path(folder) / "anyvisor" / "hri" / "v1"
        if "--check" in sys.argv:
            names = [path.name for path in made.iterdir()]
            _, differing, missing = filecmp.cmpfiles(made, OUT, names, shallow=False)
            for name in differing + missing:
                print(f"genproto: {name} is stale; run `make proto`", file=sys.stderr)
            return 1 if differing or missing else 0
        OUT.mkdir(exist_ok=True)
        for path in made.iterdir():
            (OUT / path.name).write_bytes(path.read_bytes())
        (OUT / "__init__.py").write_text('"""Generated from ../proto; do not edit."""\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Installs the test VMM as a program that a launcher can execute."""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def install(directory: Path, **knobs: Any) -> str:
    """Write the program; returns its path. `knobs`: the faults to order, see vmm_http.py."""
    program = directory / "cloud-hypervisor"
    program.with_suffix(".knobs").write_text(json.dumps(knobs))
    program.write_text(
        f"#!{sys.executable} -I\n"
        "import json, sys\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "import vmm_http\n"
        f"vmm_http.main(json.load(open({str(program.with_suffix('.knobs'))!r})))\n"
    )
    program.chmod(0o755)
    return str(program)


def order(program: str, **knobs: Any) -> None:
    """Change the knobs for VMMs that are started from now on."""
    Path(program).with_suffix(".knobs").write_text(json.dumps(knobs))

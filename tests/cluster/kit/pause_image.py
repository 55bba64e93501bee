"""The program that waits, and the image of pods' sandboxes, which holds nothing else."""

import subprocess
from pathlib import Path
from typing import Final

from tools.images import oci

NAME: Final = "localhost/pause:1"


def program(place: Path) -> Path:
    """The program, compiled at first use."""
    path = (place / "pause").resolve()
    if not path.exists():
        source = Path(__file__).with_name("pause.c")
        subprocess.run(["gcc", "-Os", "-static", "-o", str(path), str(source)], check=True)
    return path


def archive(place: Path) -> Path:
    """The image."""
    target = place / "pause.tar"
    if not target.exists():
        layer = oci.files_layer({"/pause": program(place)}, executable=True)
        oci.write(target, NAME, [layer], oci.Config(entrypoint=("/pause",)))
    return target

"""How large the image store may grow: a file beside it, half of its file system without one."""

import json
import shutil
from pathlib import Path
from typing import Final

from anyvisor.agent.volumes.qcow2 import ImageError
from anyvisor.embedded.instance import write_file

_FILE: Final = "settings.json"


def read_cap(store: Path) -> int:
    """Bytes that images from registries may fill together with all others.

    Raises:
        ImageError: the setting is damaged.
    """
    try:
        return int(json.loads((store / _FILE).read_bytes())["capBytes"])
    except FileNotFoundError:
        return shutil.disk_usage(store).total // 2
    except (ValueError, KeyError, TypeError) as error:
        raise ImageError(f"{store / _FILE} is damaged: set the size again by `anyvisor image cap SIZE`") from error


def write_cap(store: Path, cap: int) -> None:
    """Set it."""
    write_file(store / _FILE, json.dumps({"capBytes": cap}).encode(), 0o644)

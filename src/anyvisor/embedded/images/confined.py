"""Run a program that handles content from the network as a user without rights: `python -m ... UID DIR BYTES COMMAND`.

It ends with its parent, can gain no privileges, writes no file larger than BYTES, and finds nothing of its own but DIR.
"""

import os
import resource
import sys
from pathlib import Path

from anyvisor.embedded import confine, system

MODULE = "anyvisor.embedded.images.confined"


def main(words: list[str]) -> None:
    """Become the user and then the program; returns only by an exception."""
    user, directory, limit, *command = words
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    confine.become(int(user), [Path(directory)])
    system.end_with_parent(os.getppid())
    system.forbid_new_privileges()
    os.chdir(directory)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])

"""`anyvisor restore FILE`: the objects of a backup, instead of those that are there."""

import argparse
import os
from pathlib import Path

from anyvisor.cli.api import instance
from anyvisor.cli.main import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Where from."""
    parser.add_argument("file", metavar="FILE", type=Path, help="what `anyvisor backup` wrote")


def run(arguments: argparse.Namespace) -> int:
    """Only while no server runs; VMs that run meanwhile and are not in the backup are ended by the next `up`."""
    from anyvisor.embedded.apiserver import backup
    from anyvisor.embedded.apiserver.store import StoreError

    of = instance()
    try:
        backup.restore(arguments.file, of.database)
    except StoreError as error:
        raise CommandError(f"{error} (`anyvisor down` first, if the instance runs)") from error
    if of.users.separate:
        os.chown(of.database, of.users.control, of.users.control)
    print("the objects are restored; `anyvisor up --detach` starts with them")
    return 0

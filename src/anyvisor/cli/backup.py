"""`anyvisor backup FILE`: the objects of the API; disks of VMs are not in it."""

import argparse
from pathlib import Path

from anyvisor.cli.api import instance
from anyvisor.cli.main import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Where to."""
    parser.add_argument("file", metavar="FILE", type=Path, help="a new file; disks of VMs are not in it")


def run(arguments: argparse.Namespace) -> int:
    """Copy while requests go on."""
    from anyvisor.embedded.apiserver import backup
    from anyvisor.embedded.apiserver.store import StoreError

    try:
        backup.take(instance().database, arguments.file)
    except StoreError as error:
        raise CommandError(str(error)) from error
    print(f"all objects are in {arguments.file}")
    return 0

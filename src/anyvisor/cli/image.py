"""`anyvisor image import|list|remove`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from anyvisor.cli.main import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Three verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    take = verbs.add_parser("import", help="take in a disk or a container image")
    take.add_argument("file", metavar="FILE", type=Path, help="raw or qcow2 disk, or an OCI / `docker save` archive")
    take.add_argument("--name", required=True, metavar="REF", help="what VMs call it, e.g. demo or host/demo:1")
    shown = verbs.add_parser("list", help="list the images")
    shown.add_argument("-o", "--output", choices=["table", "json"], default="table", help="output format")
    gone = verbs.add_parser("remove", help="forget an image")
    gone.add_argument("name", metavar="REF", help="its name")


def run(arguments: argparse.Namespace) -> int:
    """Work on the store directly: it needs no server."""
    from anyvisor.agent.volumes.qcow2 import ImageError
    from anyvisor.embedded.images.store import ImageStore
    from anyvisor.embedded.instance import InstanceError, create_instance, default_data_dir

    try:
        store = ImageStore(create_instance(default_data_dir()).image_dir)
        return _VERBS[arguments.verb](store, arguments)
    except (ImageError, InstanceError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename or 'the store'}: {error.strerror or error}") from error


def _import(store: Any, arguments: argparse.Namespace) -> int:
    shown = sys.stderr.isatty()

    def progress(path: str, size: int) -> None:
        print(f"\r{path}: {size >> 20} MiB", end="", file=sys.stderr)

    image = store.import_file(arguments.file, arguments.name, progress if shown else None)
    if shown:
        print("\r\033[K", end="", file=sys.stderr)
    print(f"image {image.reference} imported ({len(image.files)} files, {_size(image.bytes)})")
    return 0


def _list(store: Any, arguments: argparse.Namespace) -> int:
    import dataclasses
    import json
    import time

    images = store.images()
    if arguments.output == "json":
        print(json.dumps({"items": [dataclasses.asdict(image) for image in images]}))
        return 0
    rows = [("NAME", "DIGEST", "FILES", "SIZE", "CREATED")]
    for image in images:
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(image.created))
        rows.append((image.reference, image.digest[7:19], str(len(image.files)), _size(image.bytes), created))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _remove(store: Any, arguments: argparse.Namespace) -> int:
    print(f"image {store.remove(arguments.name).reference} removed")
    return 0


def _size(count: int) -> str:
    return f"{count / 1024**2:.1f} MiB" if count < 1024**3 else f"{count / 1024**3:.1f} GiB"


_VERBS = {"import": _import, "list": _list, "remove": _remove}

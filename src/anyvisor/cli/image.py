"""`anyvisor image`: what is in the store, and how it comes and goes."""

import argparse
import sys
from pathlib import Path
from typing import Any

from anyvisor.cli.main import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """One parser a verb."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    take = verbs.add_parser("import", help="take in a disk or a container image")
    take.add_argument(
        "file",
        metavar="FILE",
        type=Path,
        help="raw, qcow2, VMDK, VHD(X) or VDI disk, or an image archive (OCI, `docker save`)",
    )
    take.add_argument("--name", required=True, metavar="REF", help="what VMs call it, e.g. demo or host/demo:1")
    pull = verbs.add_parser("pull", help="fetch a container image from its registry")
    pull.add_argument("name", metavar="REF", help="e.g. quay.io/containerdisks/debian:12")
    pull.add_argument("--authfile", type=Path, metavar="FILE", help="logins, as `skopeo login` and Docker keep them")
    pushed = verbs.add_parser("push", help="copy the images of the components to a registry of your own")
    pushed.add_argument("file", metavar="FILE", type=Path, nargs="*", help="archives (default: build/images/*.tar)")
    pushed.add_argument("--registry", required=True, metavar="HOST/PATH", help="as `anyvisor install --registry`")
    pushed.add_argument("--authfile", type=Path, metavar="FILE", help="logins, as `skopeo login` and Docker keep them")
    pushed.add_argument("--plain-http", action="store_true", help="the registry has no (valid) certificate")
    made = verbs.add_parser("build", help="build a Debian disk with cloud-init, an SSH server and the guest agent")
    made.add_argument("--name", default="debian", metavar="REF", help="what VMs call it (default: debian)")
    made.add_argument("--package", action="append", default=[], metavar="NAME", help="a further package; repeatable")
    made.add_argument("--size", default="2Gi", metavar="SIZE", help="of the disk (default: 2Gi)")
    made.add_argument("--suite", default="bookworm", metavar="NAME", help="Debian release (default: bookworm)")
    made.add_argument("--mirror", default="", metavar="URL", help="where packages come from (default: Debian's own)")
    shown = verbs.add_parser("list", help="list the images")
    outputs = ["table", "json", "yaml", "name"]
    shown.add_argument("-o", "--output", choices=outputs, default="table", help="output format")
    gone = verbs.add_parser("remove", help="forget an image")
    gone.add_argument("name", metavar="REF", help="its name")
    collect = verbs.add_parser("gc", help="remove pulled images that no VM uses, the longest unused first")
    much = collect.add_mutually_exclusive_group()
    much.add_argument("--unused", action="store_true", help="all of them, instead of down to the store's size")
    much.add_argument("--to", metavar="SIZE", help="down to this size, e.g. 20Gi")
    cap = verbs.add_parser("cap", help="show or set the size above which pulls remove images that no VM uses")
    cap.add_argument("size", metavar="SIZE", nargs="?", help="e.g. 50Gi")


def run(arguments: argparse.Namespace) -> int:
    """Work on the store directly: it needs no server."""
    if arguments.verb == "push":
        return _push(arguments)
    from anyvisor.agent.volumes.qcow2 import ImageError
    from anyvisor.embedded.images.registry import PullError
    from anyvisor.embedded.images.store import ImageStore
    from anyvisor.embedded.instance import InstanceError, create_instance, default_data_dir

    try:
        instance = create_instance(default_data_dir())
        return _VERBS[arguments.verb](instance, ImageStore(instance.image_dir), arguments)
    except (ImageError, InstanceError) as error:
        raise CommandError(str(error)) from error
    except PullError as error:
        raise CommandError(f"image {arguments.name} cannot be pulled: {error}") from error
    except OSError as error:
        raise CommandError(f"{error.filename or 'the store'}: {error.strerror or error}") from error


def _import(instance: Any, store: Any, arguments: argparse.Namespace) -> int:
    from anyvisor.cli.progress import bar
    from anyvisor.embedded.images.convert import converted, foreign_format

    if not foreign_format(arguments.file):
        return _take_in(store, arguments, arguments.file)
    with bar(f"converting {arguments.file.name}") as progress:
        work = converted(arguments.file, instance.image_dir / "convert", instance.users.images, progress)
        with work as disk:
            return _take_in(store, arguments, disk)


def _take_in(store: Any, arguments: argparse.Namespace, file: Path) -> int:
    shown = sys.stderr.isatty()

    def progress(path: str, size: int) -> None:
        print(f"\r{path}: {size >> 20} MiB", end="", file=sys.stderr)

    image = store.import_file(file, arguments.name, progress if shown else None)
    if shown:
        print("\r\033[K", end="", file=sys.stderr)
    print(f"image {image.reference} imported ({len(image.files)} files, {_size(image.bytes)})")
    return 0


def _pull(instance: Any, store: Any, arguments: argparse.Namespace) -> int:
    import asyncio
    import os
    import shutil

    from anyvisor.cli.progress import bar
    from anyvisor.embedded.images.pull import ALWAYS, puller

    owner = f"command-{os.getpid()}"
    credentials = arguments.authfile.read_bytes() if arguments.authfile else b""
    pulls = puller(instance, store, owner)
    try:
        with bar(f"pulling {arguments.name}") as progress:
            done = asyncio.run(pulls.ensure(arguments.name, ALWAYS, credentials, progress))
    finally:
        shutil.rmtree(pulls.registry.directory, ignore_errors=True)
    image = done.image
    if done.seconds is None:
        print(f"image {image.reference} is here already ({image.digest})")
    else:
        print(f"image {image.reference} pulled ({_size(image.bytes)}, {image.digest})")
    return 0


def _push(arguments: argparse.Namespace) -> int:
    """Of archives, not of the store: it needs no instance."""
    from anyvisor.cli.progress import steps
    from anyvisor.embedded.images.push import PushError, push, read_archive

    files: list[Path] = arguments.file or sorted(Path("build/images").glob("*.tar"))
    if not files:
        raise CommandError("there is no build/images/*.tar: run `make images`, or name the archives")
    try:
        archives = [read_archive(file) for file in files]
        for archive in archives:
            with steps(f"pushing {archive.name}"):
                name = push(archive, arguments.registry, arguments.authfile, plain_http=arguments.plain_http)
            print(f"{name}@{archive.digest}")
    except PushError as error:
        raise CommandError(f"not pushed: {error}") from error
    return 0


def _build(_instance: Any, store: Any, arguments: argparse.Namespace) -> int:
    import tempfile

    from anyvisor.cli.progress import steps
    from anyvisor.embedded.images.debian.build import BuildError, build
    from anyvisor.embedded.images.debian.recipe import Recipe, RecipeError

    packages = tuple(dict.fromkeys(arguments.package))
    recipe = Recipe(packages, arguments.suite, arguments.mirror, _bytes(arguments.size))
    image = store.name_built(recipe.key, arguments.name)
    if image is not None:
        print(f"image {image.reference} was built already ({_size(image.bytes)})")
        return 0
    try:
        with steps(f"building {arguments.name}") as report, tempfile.TemporaryDirectory(dir="/var/tmp") as place:
            built = build(recipe, Path(place), report)
            report("taking it into the store")
            files = {"/disk/debian.raw": built.disk, "/boot/vmlinuz": built.kernel, "/boot/initrd.img": built.initrd}
            image = store.import_built(files, arguments.name, recipe.key)
    except (BuildError, RecipeError) as error:
        raise CommandError(f"image {arguments.name} is not built: {error}") from error
    print(f"image {image.reference} built ({_size(image.bytes)})")
    return 0


def _list(_instance: Any, store: Any, arguments: argparse.Namespace) -> int:
    import dataclasses
    import json
    import time

    usages = store.usage()
    if arguments.output == "name":
        for usage in usages:
            print(usage.image.reference)
        return 0
    if arguments.output != "table":
        items = [
            {
                **dataclasses.asdict(usage.image),
                "disk_bytes": usage.disk_bytes,
                "used_at": int(usage.used_at),
                "used_by": usage.users,
            }
            for usage in usages
        ]
        text = json.dumps({"items": items})
        if arguments.output == "yaml":
            from anyvisor.cli.documents import to_yaml

            text = to_yaml(json.loads(text)).rstrip()
        print(text)
        return 0
    rows = [("NAME", "DIGEST", "FROM", "SIZE", "ON DISK", "LAST USED", "USED BY")]
    for usage in usages:
        image, used = usage.image, time.strftime("%Y-%m-%d %H:%M", time.localtime(usage.used_at))
        digest, size, disk = image.digest[7:19], _size(image.bytes), _size(usage.disk_bytes)
        rows.append((image.reference, digest, image.origin, size, disk, used, _count(usage.users)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _count(users: tuple[str, ...]) -> str:
    return ", ".join(users[:2]) + (f" and {len(users) - 2} more" if len(users) > 2 else "")


def _remove(_instance: Any, store: Any, arguments: argparse.Namespace) -> int:
    print(f"image {store.remove(arguments.name).reference} removed")
    return 0


def _gc(instance: Any, store: Any, arguments: argparse.Namespace) -> int:
    from anyvisor.embedded.images.settings import read_cap

    before = store.disk_bytes()
    target = 0 if arguments.unused else _bytes(arguments.to) if arguments.to else read_cap(instance.image_dir)
    for image in store.collect(target):
        print(f"image {image.reference} removed")
    after = store.disk_bytes()
    print(f"{_size(before - after)} freed; the store has {_size(after)}")
    return 0


def _cap(instance: Any, store: Any, arguments: argparse.Namespace) -> int:
    from anyvisor.embedded.images.settings import read_cap, write_cap

    if arguments.size:
        write_cap(instance.image_dir, _bytes(arguments.size))
    print(f"pulls remove unused images above {_size(read_cap(instance.image_dir))}; now {_size(store.disk_bytes())}")
    return 0


def _bytes(text: str) -> int:
    from anyvisor.api.quantity import QuantityError, parse_quantity

    try:
        return parse_quantity(text).value
    except QuantityError as error:
        raise CommandError(f"{text!r} is no size, like 50Gi: {error}") from error


def _size(count: int) -> str:
    return f"{count / 1024**2:.1f} MiB" if count < 1024**3 else f"{count / 1024**3:.1f} GiB"


_VERBS = {"import": _import, "pull": _pull, "build": _build, "list": _list, "remove": _remove, "gc": _gc, "cap": _cap}

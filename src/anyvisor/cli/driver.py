"""`anyvisor driver install|upgrade|remove|list|show`: drivers that come from outside, while the instance runs."""

import argparse
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from anyvisor.api.meta import list_at, object_at, text_at
from anyvisor.cli.api import Api, ApiRefusalError, connect
from anyvisor.cli.main import CommandError
from anyvisor.cli.tables import show

if TYPE_CHECKING:
    from anyvisor.hri.folders import DriverFolder

Json = dict[str, Any]
GROUP = "/apis/anyvisor.io/v1alpha1"
KUBEVIRT = "/apis/kubevirt.io/v1"
_FINAL = ("Succeeded", "Failed")
_MAX_UNPACKED = 512 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """The verbs."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    source = "a folder with manifest and program, or a .tar(.gz) of one"
    install = verbs.add_parser("install", help="add a driver and offer it by a class")
    install.add_argument("source", metavar="FOLDER", help=source)
    install.add_argument(
        "--class", dest="hypervisor", metavar="NAME", help="the class's name (default: its first word)"
    )
    install.add_argument("--no-class", action="store_true", help="make no class: an admin will")
    upgrade = verbs.add_parser("upgrade", help="put another version in the place of an installed one")
    upgrade.add_argument("source", metavar="FOLDER", help=source)
    remove = verbs.add_parser("remove", help="take a driver away; refused while VMs use it")
    remove.add_argument("name", metavar="DRIVER", help="its name, as `anyvisor driver list` shows it")
    show_one = verbs.add_parser("show", help="what one states, and what of it a conformance result proves")
    show_one.add_argument("name", metavar="DRIVER", help="its name, as `anyvisor driver list` shows it")
    verbs.add_parser("list", help="what is installed, where it is healthy, and what uses it")


def run(arguments: argparse.Namespace) -> int:
    """One verb."""
    api = connect()
    match arguments.verb:
        case "install":
            with tempfile.TemporaryDirectory(prefix="anyvisor-") as scratch:
                _install(api, _read(arguments.source, scratch), arguments.hypervisor, offer=not arguments.no_class)
        case "upgrade":
            with tempfile.TemporaryDirectory(prefix="anyvisor-") as scratch:
                _upgrade(api, _read(arguments.source, scratch))
        case "remove":
            _remove(api, arguments.name)
        case "show":
            from anyvisor.cli import driver_show

            show(driver_show.HEADER, list(driver_show.rows(driver_show.find(api, arguments.name))))
        case _:
            _list(api)
    return 0


def _read(source: str, scratch: str) -> "DriverFolder":
    from anyvisor.hri import folders

    path = Path(source)
    try:
        return folders.read(path if path.is_dir() else _unpack(path, Path(scratch)))
    except folders.FolderError as error:
        raise CommandError(str(error)) from error


def _unpack(file: Path, target: Path) -> Path:
    """The folder in an archive, whose own top folder may be it."""
    try:
        with tarfile.open(file) as archive:
            if sum(member.size for member in archive) > _MAX_UNPACKED:
                raise CommandError(f"{file} holds more than {_MAX_UNPACKED >> 20} MiB; a driver is smaller")
            archive.extractall(target, filter="data")
    except FileNotFoundError as error:
        raise CommandError(f"there is no {file}: name a driver's folder, or a tar archive of one") from error
    except (OSError, tarfile.TarError) as error:
        raise CommandError(f"{file} is neither a folder nor a tar archive of one: {error}") from error
    inside = list(target.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else target


def _install(api: Api, folder: "DriverFolder", hypervisor: str | None, *, offer: bool) -> None:
    name = folder.name
    if _object(api, "hypervisordrivers", name) is not None:
        raise CommandError(
            f"a driver {name} is installed already: `anyvisor driver upgrade` puts another version in its place"
        )
    hypervisor = hypervisor or name.partition(".")[0]
    taken = _object(api, "hypervisorclasses", hypervisor) if offer else None
    if taken is not None and text_at(taken, "spec", "driver") != name:
        raise CommandError(
            f"there is a class {hypervisor} already, of driver {text_at(taken, 'spec', 'driver')}: choose --class NAME"
        )
    _put(api, folder)
    _apply(api, "HypervisorDriver", "hypervisordrivers", name, _driver_spec(folder))
    if offer and taken is None:
        _apply(api, "HypervisorClass", "hypervisorclasses", hypervisor, {"driver": name})
    print(f"driver {name} {folder.version} is installed" + (f", class {hypervisor} offers it" if offer else ""))
    _tell_health(api, name, folder.version)


def _upgrade(api: Api, folder: "DriverFolder") -> None:
    from anyvisor.embedded import driver_store

    name = folder.name
    old = next((each for each in driver_store.added(api.instance) if each.name == name), None)
    if old is None:
        raise CommandError(f"no driver {name} was added here: `anyvisor driver install` adds it")
    if old.version == folder.version:
        raise CommandError(f"driver {name} {folder.version} is installed already; another version has another number")
    running = [vmi for vmi in _running(api) if text_at(vmi, "status", "hypervisor", "driver") == name]
    _put(api, folder)
    _apply(api, "HypervisorDriver", "hypervisordrivers", name, _driver_spec(folder))
    print(f"driver {name} is now {folder.version} (was {old.version})")
    if running and folder.manifest.adopts(old.version):
        print(f"{len(running)} running VMs go on, and the new version takes them over")
    elif running:
        print(f"{len(running)} running VMs stay with {old.version}, which goes when the last of them has ended")
    _tell_health(api, name, folder.version)


def _remove(api: Api, name: str) -> None:
    from anyvisor.embedded import driver_store

    if not (driver_store.root(api.instance) / name).is_dir():
        if _object(api, "hypervisordrivers", name) is None:
            raise CommandError(f"there is no driver {name}; `anyvisor driver list` shows what is installed")
        raise CommandError(f"driver {name} comes with anyvisor itself: `anyvisor up --drivers` says which ones serve")
    classes = [text_at(each, "metadata", "name") for each in _classes(api, name)]
    users = _users(api, name, classes)
    if users:
        raise CommandError(
            f"driver {name} is in use by {', '.join(users[:10])}{' and others' if len(users) > 10 else ''}: "
            "delete them, or give them another spec.hypervisor, first"
        )
    for each in classes:
        api.call("DELETE", f"{GROUP}/hypervisorclasses/{each}")
    if _object(api, "hypervisordrivers", name) is not None:
        api.call("DELETE", f"{GROUP}/hypervisordrivers/{name}")
    driver_store.remove(api.instance, name)
    _reload(api)
    print(f"driver {name} is removed" + (f", and the classes {', '.join(classes)}" if classes else ""))


def _list(api: Api) -> None:
    from anyvisor.embedded import driver_store

    folders = {folder.name: folder for folder in driver_store.added(api.instance)}
    drivers = {text_at(driver, "metadata", "name"): driver for driver in _items(api, f"{GROUP}/hypervisordrivers")}
    other = [name for name in folders if object_at(drivers.get(name) or {}, "spec", "manifest") != folders[name].raw]
    added = folders.keys() - set(other)
    nodes = _items(api, f"{GROUP}/hypervisornodes")
    running = [text_at(vmi, "status", "hypervisor", "driver") for vmi in _running(api)]
    rows = [
        (
            name,
            text_at(driver, "spec", "manifest", "version"),
            "added" if name in added else "anyvisor",
            ",".join(text_at(each, "metadata", "name") for each in _classes(api, name)) or "-",
            _healthy_on(nodes, name),
            running.count(name),
        )
        for name, driver in drivers.items()
    ]
    show(("DRIVER", "VERSION", "FROM", "CLASSES", "HEALTHY ON", "RUNNING VMS"), rows)
    for name in other:
        print(f"{name}: what was added is not used, as another driver of this name serves: choose others with")
        print("  `anyvisor up --drivers`, or take it away with `anyvisor driver remove`")
    for name, problem in driver_store.damaged(api.instance).items():
        print(f"{name}: cannot be used: {problem}")
    for folder in driver_store.retired(api.instance):
        print(f"{folder.name} {folder.version}: kept for the machines that it runs")


def _healthy_on(nodes: list[Json], name: str) -> str:
    states = [entry for node in nodes for entry in list_at(node, "status", "drivers") if entry.get("driver") == name]
    healthy = sum(entry.get("healthy") is True for entry in states)
    return f"{healthy} of {len(nodes)} nodes"


def _put(api: Api, folder: "DriverFolder") -> None:
    from anyvisor.embedded import driver_store

    try:
        driver_store.put(api.instance, folder)
    except OSError as error:
        raise CommandError(f"the driver cannot be copied to {driver_store.root(api.instance)}: {error}") from error
    _reload(api)


def _reload(api: Api) -> None:
    from anyvisor.embedded.zygote_client import ZygoteClient, ZygoteError

    try:
        ZygoteClient(api.instance.zygote_socket).reload()
    except ZygoteError as error:
        raise CommandError(f"{error}; the next `anyvisor up` takes up the change") from error


def _tell_health(api: Api, name: str, version: str, seconds: float = 20.0) -> None:
    """Wait for the nodes' first word on the driver, and say where it does not work and why."""
    deadline = time.monotonic() + seconds
    entries: list[tuple[str, Json]] = []
    while time.monotonic() < deadline:
        nodes = _items(api, f"{GROUP}/hypervisornodes")
        entries = [
            (text_at(node, "metadata", "name"), entry)
            for node in nodes
            for entry in cast("list[Json]", list_at(node, "status", "drivers"))
            if entry.get("driver") == name and entry.get("version") in (version, None)
        ]
        if len(entries) == len(nodes) and all(entry.get("healthy") for _, entry in entries):
            return
        time.sleep(0.2)
    for node, entry in entries:
        if not entry.get("healthy"):
            reasons = (text_at(condition, "message") for condition in list_at(entry, "conditions"))
            print(f"  {node}: not healthy: {next((reason for reason in reasons if reason), 'no word of it yet')}")
    if not entries:
        print(f"  no node has a word of it yet; `anyvisor nodes` shows more, and {api.instance.log_dir} has its log")


def _driver_spec(folder: "DriverFolder") -> Json:
    from anyvisor.hri.evidence import brief

    spec: Json = {"manifest": dict(folder.raw)}
    if folder.evidence:
        spec["evidence"] = brief(folder.evidence)
    return spec


def _apply(api: Api, kind: str, plural: str, name: str, spec: Json) -> None:
    obj = {"apiVersion": "anyvisor.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    present = _object(api, plural, name)
    if present is None:
        api.call("POST", f"{GROUP}/{plural}", obj)
    else:
        obj["metadata"] = {"name": name, "resourceVersion": text_at(present, "metadata", "resourceVersion")}
        api.call("PUT", f"{GROUP}/{plural}/{name}", obj)


def _object(api: Api, plural: str, name: str) -> Json | None:
    try:
        return api.call("GET", f"{GROUP}/{plural}/{name}")
    except ApiRefusalError as error:
        if error.status == 404:
            return None
        raise


def _items(api: Api, path: str) -> list[Json]:
    return api.call("GET", path)["items"]


def _classes(api: Api, driver: str) -> list[Json]:
    return [each for each in _items(api, f"{GROUP}/hypervisorclasses") if text_at(each, "spec", "driver") == driver]


def _running(api: Api) -> list[Json]:
    return [
        vmi
        for vmi in _items(api, f"{KUBEVIRT}/virtualmachineinstances")
        if text_at(vmi, "status", "phase") not in _FINAL
    ]


def _users(api: Api, driver: str, classes: list[str]) -> list[str]:
    """VMs and running instances that would lose their hypervisor."""
    found: list[str] = []
    for kind, items in (
        ("vm", _items(api, f"{KUBEVIRT}/virtualmachines")),
        ("vmi", _running(api)),
    ):
        for item in items:
            spec = object_at(item, "spec", "template", "spec") if kind == "vm" else object_at(item, "spec")
            status = object_at(item, "status", "hypervisor")
            if {spec.get("hypervisor"), status.get("class")} & set(classes) or status.get("driver") == driver:
                found.append(f"{kind}/{text_at(item, 'metadata', 'name')} in {text_at(item, 'metadata', 'namespace')}")
    return found

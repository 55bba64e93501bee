"""`anyvisor classes|drivers|nodes`: what the instance can run VMs on."""

import argparse
from collections.abc import Mapping
from typing import Any, cast

from anyvisor.api.paths import list_at, object_at, text_at
from anyvisor.cli.api import connect
from anyvisor.cli.tables import show

Json = dict[str, Any]
_GROUP = "/apis/anyvisor.io/v1alpha1"
_PLURALS = {"classes": "hypervisorclasses", "drivers": "hypervisordrivers", "nodes": "hypervisornodes"}
_KINDS = {
    "classes": "hypervisorclass.anyvisor.io",
    "drivers": "hypervisordriver.anyvisor.io",
    "nodes": "hypervisornode.anyvisor.io",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """`-o` as kubectl has it."""
    parser.add_argument(
        "-o", "--output", choices=["table", "json", "yaml", "name"], default="table", help="output format"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    api = connect()
    listed: Json = api.call("GET", f"{_GROUP}/{_PLURALS[arguments.command]}")
    items: list[Json] = listed["items"]
    match arguments.output:
        case "json":
            import json

            print(json.dumps(listed))
        case "yaml":
            from anyvisor.cli.documents import to_yaml

            print(to_yaml(listed), end="")
        case "name":
            for item in items:
                print(f"{_KINDS[arguments.command]}/{item['metadata']['name']}")
        case _:
            if arguments.command == "nodes":
                show(*_nodes(items, api.call("GET", f"{_GROUP}/{_PLURALS['drivers']}")["items"]))
            else:
                show(*_TABLES[arguments.command](items))
    return 0


def _classes(items: list[Json]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    rows = [
        (item["metadata"]["name"], item["spec"]["driver"], "yes" if item["spec"].get("default") else "")
        for item in items
    ]
    return ("CLASS", "DRIVER", "DEFAULT"), rows


def _drivers(items: list[Json]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    rows = [(item["metadata"]["name"], *_manifest(item["spec"]["manifest"]), *_worths(item["spec"])) for item in items]
    head = ("DRIVER", "VERSION", "VMM", "LAUNCH", "ACCELERATORS", "SUPPORTED", "CLAIMED", "EXPERIMENTAL")
    return head, rows


def _manifest(manifest: Json) -> tuple[str, ...]:
    return manifest["version"], manifest["vmm"]["name"], manifest["launchMode"], ",".join(manifest["accelerators"])


def _worths(spec: Json) -> tuple[Any, ...]:
    """How many capabilities are proven by a result of the conformance program, only claimed, or experimental."""
    from anyvisor.planning.evidence import counts, standing
    from anyvisor.planning.manifest import ManifestError, digest, parse
    from anyvisor.planning.registry import registry

    try:
        manifest = parse(spec["manifest"], registry())
    except ManifestError:
        return ("not usable", "", "")
    found = counts(standing(manifest, digest(spec["manifest"]), cast("list[Json]", list_at(spec, "evidence"))))
    return found["supported"], found["claimed"], found["experimental"]


def _nodes(items: list[Json], drivers: list[Json]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    from anyvisor.planning.manifest import digest

    installed = {text_at(one, "metadata", "name"): digest(object_at(one, "spec", "manifest")) for one in drivers}
    rows = [
        (
            item["metadata"]["name"],
            driver["driver"],
            driver.get("version", ""),
            _health(driver, installed),
            ",".join(list_at(driver, "accelerators")) or "-",
        )
        for item in items
        for driver in cast("list[Json]", list_at(item, "status", "drivers"))
    ]
    return ("NODE", "DRIVER", "VERSION", "HEALTHY", "ACCELERATORS"), rows


def _health(driver: Json, installed: Mapping[str, str]) -> str:
    """A driver that runs by another manifest than the installed one gets no new machines, well as it may be."""
    runs_by = driver.get("manifestDigest")
    if runs_by and installed.get(driver["driver"], runs_by) != runs_by:
        return "no: another manifest"
    return "yes" if driver.get("healthy") else "no"


_TABLES = {"classes": _classes, "drivers": _drivers}

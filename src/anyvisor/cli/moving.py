"""`anyvisor review --move-to`: whether machines can move to a node or a class, and how."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from urllib.parse import quote

from anyvisor.api.meta import kind, list_at, text_at
from anyvisor.cli.api import Api, ApiRefusalError
from anyvisor.cli.main import CommandError

Json = dict[str, Any]
HEADER: Final = ("MACHINE", "TO CLASS", "TO NODE", "MOVES")
_GROUP: Final = "/apis/anyvisor.io/v1alpha1"
_PLURALS: Final = {"node": "hypervisornodes", "class": "hypervisorclasses"}
_BARRED: Final = {"cold": "cannot move", "live": "cannot move while it runs", "nothing": "note"}


def target(api: Api, named: str) -> Json:
    """`spec.moveTo` of the review. Raises CommandError when nothing, or both, have the name."""
    what, slash, name = named.partition("/")
    if slash and what in _PLURALS:
        return {what: name}
    found = [each for each, plural in _PLURALS.items() if _get(api, f"{_GROUP}/{plural}/{quote(named)}") is not None]
    if len(found) == 1:
        return {found[0]: named}
    if found:
        raise CommandError(f"{named} is a node and a class: write --move-to node/{named} or class/{named}")
    raise CommandError(f"there is neither a node nor a class {named!r}; see `anyvisor nodes` and `anyvisor classes`")


def existing(api: Api, namespace: str, name: str) -> Json:
    """A VM of the instance. Raises CommandError."""
    found = _get(api, f"/apis/kubevirt.io/v1/namespaces/{quote(namespace)}/virtualmachines/{quote(name)}")
    if found is None:
        raise CommandError(f"there is no VM {name!r} in {namespace}; `anyvisor get` lists those that are")
    return {**found, "kind": "VirtualMachine"}


def as_it_runs(api: Api, machine: Json, namespace: str) -> Json:
    """The machine that runs of a VM, which alone can move; the VM itself where none does."""
    if kind(machine) != "VirtualMachine":
        return machine
    where = text_at(machine, "metadata", "namespace") or namespace
    name = text_at(machine, "metadata", "name")
    if not name:
        return machine
    path = f"/apis/kubevirt.io/v1/namespaces/{quote(where)}/virtualmachineinstances/{quote(name)}"
    running = _get(api, path)
    return machine if running is None else {**running, "kind": "VirtualMachineInstance"}


def row(name: str, answer: Mapping[str, Any]) -> Sequence[str]:
    """For the table."""
    how = {"live": "while it runs", "cold": "by a stop and a start", "no": "no"}[str(answer["how"])]
    return (name, str(answer["class"]), str(answer["node"]) or "any", how)


def reasons(answer: Mapping[str, Any]) -> Iterator[str]:
    """Why not in a better way; what bars any move bars a live one as well, and is said once."""
    for finding in cast("list[Json]", list_at(answer, "findings")):
        if answer["how"] == "no" and finding["bars"] == "live":
            continue
        yield f"{_BARRED[finding['bars']]}: {finding['message']}"


def _get(api: Api, path: str) -> Json | None:
    try:
        return api.call("GET", path)
    except ApiRefusalError as error:
        if error.status == 404:
            return None
        raise

"""What a changed manifest means for a VM that runs: at once, at the next start, by a move, or not at all."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import quote

from anyvisor.api.meta import object_at, text_at
from anyvisor.cli.api import Api, ApiRefusalError
from anyvisor.cli.main import CommandError
from anyvisor.planning.changes import FieldChange, classify, with_room
from anyvisor.planning.manifest import Manifest, ManifestError, parse
from anyvisor.planning.registry import registry

Json = dict[str, Any]
HEADER: Final = ("FIELD", "EFFECT", "NOW", "THEN", "WHY")
_SHOWN: Final = 40


def changes(api: Api, wanted: Json, namespace: str) -> Sequence[FieldChange]:
    """Each place in which the manifest of a VM differs from the VM that there is.

    Raises:
        CommandError: there is no such VM, or nobody knows its driver.
    """
    name = text_at(wanted, "metadata", "name")
    where = text_at(wanted, "metadata", "namespace") or namespace
    path = f"/apis/kubevirt.io/v1/namespaces/{quote(where)}"
    try:
        present = api.call("GET", f"{path}/virtualmachines/{quote(name)}")
    except ApiRefusalError as error:
        if error.status == 404:
            raise CommandError(f"there is no VM {name!r} in {where} that the manifest could change") from error
        raise
    running = _running(api, path, name)
    old, new = (with_room(_template(each), object_at(running, "spec")) for each in (present, wanted))
    return classify(old, new, _manifest(api, running, name))


def _template(vm: Mapping[str, Any]) -> Json:
    return object_at(dict(vm), "spec", "template", "spec")


def _running(api: Api, path: str, name: str) -> Json:
    try:
        return api.call("GET", f"{path}/virtualmachineinstances/{quote(name)}")
    except ApiRefusalError as error:
        if error.status == 404:
            raise CommandError(f"VM {name} does not run, so every change takes effect with its next start") from error
        raise


def _manifest(api: Api, running: Json, name: str) -> Manifest:
    """Of the driver that runs it now."""
    driver = text_at(running, "status", "hypervisor", "driver")
    if not driver:
        raise CommandError(f"VM {name} has no hypervisor yet; `anyvisor why {name}` says what it waits for")
    try:
        found = api.call("GET", f"/apis/anyvisor.io/v1alpha1/hypervisordrivers/{quote(driver)}")
        return parse(object_at(found, "spec", "manifest"), registry())
    except ManifestError as error:
        raise CommandError(f"the manifest of driver {driver} cannot be used: {error}") from error


def row(change: FieldChange) -> Sequence[str]:
    """For the table."""
    return (change.field, change.effect, _value(change.old), _value(change.new), change.message or "-")


def as_json(found: Sequence[FieldChange]) -> list[Json]:
    """For programs."""
    return [asdict(change) for change in found]


def _value(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."

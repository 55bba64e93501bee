"""Waiting until a disk is filled, with its progress."""

from typing import Any
from urllib.parse import quote

from anyvisor.api.paths import condition, text_at
from anyvisor.cli.api import Api
from anyvisor.cli.main import CommandError

DATA_VOLUMES = "/apis/cdi.kubevirt.io/v1beta1"
_LOOK_SECONDS = 20


def path(namespace: str, name: str) -> str:
    """Of a DataVolume."""
    return f"{DATA_VOLUMES}/namespaces/{quote(namespace)}/datavolumes/{quote(name)}"


def told(volume: dict[str, Any]) -> str:
    """What a DataVolume that is not filled yet is at, or why it cannot go on."""
    for kind in ("Running", "Bound"):
        found = condition(volume, kind) or {}
        if found.get("status") == "False" and found.get("message") and found.get("reason") not in ("Pending", "Bound"):
            return str(found["message"])
    phase, progress = text_at(volume, "status", "phase") or "Pending", text_at(volume, "status", "progress")
    return f"{phase}, {progress} done" if progress.endswith("%") else phase


def wait_for_disk(api: Api, namespace: str, name: str) -> None:
    """Return when the DataVolume is filled.

    Raises:
        CommandError: it cannot be.
    """
    from anyvisor.cli.progress import percentage

    collection = path(namespace, "").rstrip("/")
    with percentage(f"filling {name}") as report:
        while True:
            items: dict[str, Any] = api.call("GET", collection, query={"fieldSelector": f"metadata.name={name}"})
            none: dict[str, Any] = {}
            found: dict[str, Any] = next(iter(items["items"]), none)
            phase = text_at(found, "status", "phase")
            if phase == "Succeeded":
                return
            if phase == "Failed":
                raise CommandError(f"disk {name} cannot be filled: {told(found)}")
            report(text_at(found, "status", "progress").rstrip("%"))
            query = {
                "watch": "true",
                "fieldSelector": f"metadata.name={name}",
                "resourceVersion": items["metadata"]["resourceVersion"],
                "timeoutSeconds": str(_LOOK_SECONDS),
            }
            Api(api.instance).first_event(collection, query)

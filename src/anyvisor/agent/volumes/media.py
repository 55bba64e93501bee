"""Disks of configuration data: what is on each kind of medium, and its label."""

from collections.abc import Mapping
from typing import Any, Final

from anyvisor.agent.open_error import OpenError
from anyvisor.agent.volumes import cloudinit, iso, payloads
from anyvisor.agent.volumes.payloads import Files
from anyvisor.agent.volumes.shares import without_disk
from anyvisor.api.meta import Json, list_at, text_at

KINDS: Final = ("configMap", "secret", "downwardAPI", "serviceAccount", "sysprep", *payloads.CLOUD_INIT)
LABEL: Final = "cfgdata"
SYSPREP_LABEL: Final = "unattendCD"
ANSWER_FILES: Final = frozenset({"autounattend.xml", "unattend.xml"})
"""What Windows Setup looks for, whatever the case of its letters:
https://learn.microsoft.com/windows-hardware/manufacture/desktop/windows-setup-automation-overview"""


def image(vmi: Json, volume: Json, kind: str, at: str, carried: Mapping[str, Files]) -> bytes:
    """The ISO image of a volume; `carried` has what the pod carries, by its path there.

    Raises:
        OpenError: with the field, the cause and the next step.
    """
    source: dict[str, Any] = volume[kind] or {}
    try:
        if kind in payloads.CLOUD_INIT:
            files = cloudinit.medium(kind, source, _secrets(volume, carried), _instance(vmi, carried))
            return iso.build(cloudinit.LABELS[kind], files)
        files = carried[payloads.paths(volume)[0]]
        if kind == "sysprep":
            _check_answers(files, source, at)
            return iso.build(SYSPREP_LABEL, files)
        return iso.build(str(source.get("volumeLabel") or LABEL), files)
    except cloudinit.CloudInitError as error:
        raise OpenError(f"{at}.{error.field}", "CloudInitNotUsable", str(error), retry=error.retry) from error
    except iso.IsoError as error:
        raise OpenError(at, "VolumeNotUsable", str(error), retry=False) from error


def _secrets(volume: Json, carried: Mapping[str, Files]) -> dict[str, Files]:
    name = str(volume["name"])
    parts = {"secretRef": payloads.USER_DATA, "networkDataSecretRef": payloads.NETWORK_DATA}
    places = {reference: payloads.secret_path(name, part) for reference, part in parts.items()}
    return {reference: carried[place] for reference, place in places.items() if place in carried}


def _instance(vmi: Json, carried: Mapping[str, Files]) -> cloudinit.Instance:
    metadata = vmi["metadata"]
    # The same VM keeps its instance id over restarts, so that cloud-init runs once per VM and not once per start.
    owners: list[Json] = metadata.get("ownerReferences") or []
    owner = next((str(one["uid"]) for one in owners if one.get("controller")), str(metadata["uid"]))
    hostname = str(vmi["spec"].get("hostname") or metadata["name"]).split(".")[0]
    subdomain = text_at(vmi, "spec", "subdomain")
    keys: list[str] = []
    for credential in payloads.cloud_init_credentials(vmi):
        keys += cloudinit.public_keys(carried[payloads.credential_path(payloads.credential_secret(credential))])
    return cloudinit.Instance(
        id=owner,
        hostname=f"{hostname}.{subdomain}" if subdomain else hostname,
        uuid=text_at(vmi, "spec", "domain", "firmware", "uuid"),
        public_keys=tuple(dict.fromkeys(keys)),
    )


def _check_answers(files: Files, source: Json, at: str) -> None:
    if any(name.lower() in ANSWER_FILES for name in files):
        return
    found = next(
        (f"{kind} {text_at(source, kind, 'name')!r}" for kind in ("configMap", "secret") if kind in source), ""
    )
    raise OpenError(
        at,
        "VolumeNotUsable",
        f"{found} has no key Autounattend.xml or Unattend.xml, one of which Windows Setup looks for; add it",
        retry=True,
    )


def needed(vmi: Json) -> dict[str, str]:
    """The pod's paths whose content the disks need, with the field that asks for each."""
    found: dict[str, str] = {}
    has_medium = False
    shared = without_disk(vmi)
    for index, volume in enumerate(list_at(vmi, "spec", "volumes")):
        has_medium = has_medium or any(kind in volume for kind in payloads.CLOUD_INIT)
        for path in payloads.paths(volume) if volume["name"] not in shared else ():
            found[path] = f"spec.volumes[{index}]"
    if has_medium:
        for credential in payloads.cloud_init_credentials(vmi):
            found[payloads.credential_path(payloads.credential_secret(credential))] = "spec.accessCredentials"
    return found

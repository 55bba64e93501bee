"""`status.volumeStatus`: where each volume is on its way into the guest."""

from typing import Final

from anyvisor.api.meta import Json, is_deleting, list_at, name, object_at, text_at, uid
from anyvisor.controller import words
from anyvisor.controller.outcome import EventType
from anyvisor.controller.vm.data_volumes import claim_name
from anyvisor.controller.vmi import hotplug, pods, state_claim
from anyvisor.controller.vmi.claims import claim_info
from anyvisor.controller.vmi.world import VmiPass, spec_volumes

ATTACHABLE: Final = frozenset({"", "Bound", "Pending"})
"""Phases from which an attachment pod takes a volume to its node."""
ATTACHED: Final = "AttachedToNode"
DETACHING: Final = "Detaching"


def sync(run: VmiPass, launcher: Json) -> None:
    """Bring the entries up to date; an entry of a removed volume stays while a pod still holds it.

    Raises UnfinishedPassError where what a claim offers cannot be known yet.
    """
    old = {str(entry.get("name", "")): entry for entry in list_at(run.vmi, "status", "volumeStatus")}
    volumes = hotplug.wanted(run.world.vmi, launcher)
    hotplugged = {str(volume.get("name", "")) for volume in volumes}
    attachments = pods.attachments(run, launcher)
    attachment, _ = hotplug.split(volumes, attachments)
    entries = _state_claim_entry(run, old)
    for volume in spec_volumes(run.vmi):
        entry = _known(old, volume)
        claim = claim_name(volume)
        if "memoryDump" in volume and not entry.get("memoryDumpVolume"):
            entry["memoryDumpVolume"] = {"claimName": claim}
        if entry["name"] in hotplugged:
            _sync_hotplug(run, entry, claim, attachment)
        if claim:
            _sync_claim(run, entry, claim)
        entries.append(entry)
    for utility in list_at(run.vmi, "spec", "utilityVolumes"):
        entry = _known(old, utility)
        claim = str(utility.get("claimName", ""))
        _sync_hotplug(run, entry, claim, attachment)
        _sync_claim(run, entry, claim, must_be_filesystem=True)
        entries.append(entry)
    entries += _leaving(run, old, attachments)
    run.status["volumeStatus"] = sorted(entries, key=lambda entry: str(entry["name"]))


def _known(old: dict[str, Json], volume: Json) -> Json:
    key = str(volume.get("name", ""))
    return dict(old.pop(key, None) or {"name": key, "target": ""})


def _state_claim_entry(run: VmiPass, old: dict[str, Json]) -> list[Json]:
    if state_claim.find(run) is None:
        return []
    entry = old.pop(state_claim.VOLUME_NAME, None)
    return [entry] if entry is not None else []


def _sync_hotplug(run: VmiPass, entry: Json, claim: str, attachment: Json | None) -> None:
    plugged = entry["hotplugVolume"] = dict(object_at(entry, "hotplugVolume"))
    phase = text_at(entry, "phase")
    follow_claim = False
    if attachment is None:
        if phase != "Ready":
            plugged.pop("attachPodUID", None)
            follow_claim = True
    else:
        plugged["attachPodName"] = name(attachment)
        statuses = list_at(attachment, "status", "containerStatuses")
        if len(statuses) == 1 and statuses[0].get("ready") is True:
            plugged["attachPodUID"] = uid(attachment)
        else:
            plugged.pop("attachPodUID", None)
        if phase in ATTACHABLE:
            message = f"Created hotplug attachment pod {name(attachment)}, for volume {entry['name']}"
            entry |= {"phase": ATTACHED, "message": message, "reason": words.SUCCESSFUL_CREATE}
            run.draft.event(EventType.NORMAL, words.SUCCESSFUL_CREATE, message)
        elif phase == DETACHING:
            follow_claim = True
    if follow_claim:
        entry |= _claim_phase(run, claim)


def _claim_phase(run: VmiPass, claim: str) -> Json:
    found = run.world.claims.get(claim)
    if found is None:
        return {"phase": "Pending", "reason": words.PVC_NOT_FOUND, "message": f"PVC {claim} not found"}
    state = text_at(found, "status", "phase")
    shown = {"Pending": ("Pending", "ClaimPending"), "Bound": ("Bound", "Bound")}.get(state, ("Pending", "Lost"))
    return {"phase": shown[0], "reason": words.PVC_NOT_READY, "message": f"PVC is in phase {shown[1]}"}


def _sync_claim(run: VmiPass, entry: Json, claim: str, *, must_be_filesystem: bool = False) -> None:
    found = run.world.claims.get(claim)
    if found is None:
        return
    if must_be_filesystem and text_at(found, "spec", "volumeMode") == "Block":
        message = f"Utility volume PVC {claim} must be filesystem mode, not block mode"
        entry |= {"phase": "Pending", "reason": words.PVC_NOT_READY, "message": message}
        return
    entry["persistentVolumeClaimInfo"] = claim_info(run, found)


def _leaving(run: VmiPass, old: dict[str, Json], attachments: list[Json]) -> list[Json]:
    kept: list[Json] = []
    for volume, entry in old.items():
        pod = pods.holding(attachments, volume)
        if pod is None:
            continue
        plugged = {**object_at(entry, "hotplugVolume"), "attachPodName": name(pod), "attachPodUID": uid(pod)}
        phase = entry.get("phase") if entry.get("phase") in hotplug.IN_GUEST else DETACHING
        entry = {**entry, "hotplugVolume": plugged, "phase": phase}
        if phase == DETACHING and is_deleting(pod):
            message = f"Deleted hotplug attachment pod {name(pod)}, for volume {volume}"
            entry |= {"message": message, "reason": words.SUCCESSFUL_DELETE}
            run.draft.event(EventType.NORMAL, words.SUCCESSFUL_DELETE, message)
        kept.append(entry)
    return kept

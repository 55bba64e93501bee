"""Network interfaces: their status as the pod's networks tell it, and changes while the guest runs."""

from datetime import timedelta
from typing import Final

from anyvisor.api.meta import Json, list_at, object_at, text_at
from anyvisor.controller import words
from anyvisor.controller.conditions import find, make, parse_timestamp, remove, update
from anyvisor.controller.podspec import networks
from anyvisor.controller.vmi.world import VmiPass, migrating

MULTUS: Final = "multus-status"
DOMAIN: Final = "domain"
PLUG_IN_PLACE: Final = timedelta(seconds=15)
"""How long an interface may take to appear in the running pod before a migration is asked for."""


def sync_status(run: VmiPass, pod: Json) -> None:
    """Fill `status.interfaces` from the pod's networks; entries that only the guest knows stay."""
    spec_networks = list_at(run.vmi, "spec", "networks")
    reported = networks.reported(pod)
    old = {str(entry.get("name", "")): entry for entry in list_at(run.vmi, "status", "interfaces")}
    entries: list[Json] = []
    primary = networks.primary(spec_networks)
    if primary is not None:
        key = str(primary.get("name", ""))
        interface = networks.primary_interface(reported)
        entries.append({**old.get(key, {"name": key}), "podInterfaceName": interface})
    present = {entry.get("interface") for entry in reported}
    names = networks.interface_names(spec_networks, reported)
    for network in networks.secondary(spec_networks):
        key = str(network.get("name", ""))
        entry = _secondary(old.get(key), key, names[key], attached=names[key] in present)
        if entry is not None:
            entries.append(entry)
    named = {network.get("name") for network in spec_networks}
    by_claim = {one.get("name") for one in spec_networks if "resourceClaim" in one}
    entries += [entry for key, entry in old.items() if key not in named or key in by_claim]
    run.status["interfaces"] = entries


def _secondary(old: Json | None, key: str, interface: str, *, attached: bool) -> Json | None:
    if old is None:
        return {"name": key, "infoSource": MULTUS, "podInterfaceName": interface} if attached else None
    sources = [one for one in str(old.get("infoSource", "")).split(", ") if one and one != MULTUS]
    if attached:
        sources.append(MULTUS)
    return {**old, "infoSource": ", ".join(sources), "podInterfaceName": interface}


def pod_annotation(run: VmiPass, pod: Json) -> str | None:
    """The pod's new list of secondary networks while interfaces come or go; None = leave it."""
    vmi = run.world.vmi
    interfaces = list_at(vmi, "spec", "domain", "devices", "interfaces")
    staying = [one for one in interfaces if one.get("state") != "absent"]
    in_status = {entry.get("name") for entry in list_at(vmi, "status", "interfaces")}
    kept = [one for one in staying if "sriov" not in one or one.get("name") in in_status]
    if len(staying) == len(interfaces) and all(one.get("name") in in_status for one in kept):
        return None
    names = {one.get("name") for one in kept}
    spec_networks = [one for one in list_at(vmi, "spec", "networks") if one.get("name") in names]
    wanted = networks.selection(
        text_at(vmi, "metadata", "namespace"),
        kept,
        spec_networks,
        networks.interface_names(spec_networks, networks.reported(pod)),
        run.world.settings.network_bindings,
    )
    present = object_at(pod, "metadata", "annotations").get(words.NETWORKS, "")
    return wanted if wanted != present else None


def sync_migration_required(run: VmiPass, pod: Json) -> None:
    """Ask for a migration where a changed interface can only be had in a new pod."""
    if migrating(run):
        return
    wanted = _migration_wanted(run, pod)
    present = find(run.conditions, words.MIGRATION_REQUIRED)
    if wanted is None:
        remove(run.conditions, words.MIGRATION_REQUIRED)
        return
    if present is not None and present.get("status") == "True":
        return
    status = "True" if wanted == "now" or _waited_long(run, present) else "False"
    reason = "AutoMigrationDueToLiveUpdate" if status == "True" else "AutoMigrationPending"
    message = "An interface was added or removed; it takes effect when the instance moves to a new pod."
    update(run.conditions, make(words.MIGRATION_REQUIRED, status, reason, message, run.world.now))
    if status == "False":
        run.draft.again(10.0)


def _waited_long(run: VmiPass, present: Json | None) -> bool:
    since = parse_timestamp((present or {}).get("lastTransitionTime"))
    return since is not None and run.world.now - since > PLUG_IN_PLACE


def _migration_wanted(run: VmiPass, pod: Json) -> str | None:
    """`now`, `later` (if it does not appear in place), or None."""
    in_status = {entry.get("name"): entry for entry in list_at(run.vmi, "status", "interfaces")}
    by_interface = {entry.get("interface"): entry for entry in networks.reported(pod)}
    spec_interfaces = {one.get("name"): one for one in list_at(run.vmi, "spec", "domain", "devices", "interfaces")}
    for network in networks.secondary(list_at(run.vmi, "spec", "networks")):
        interface = spec_interfaces.get(network.get("name"))
        if interface is None:
            continue
        entry = in_status.get(network.get("name"))
        if entry is None:
            if interface.get("state") != "absent":
                return "now" if "sriov" in interface else "later"
            continue
        sources = str(entry.get("infoSource", "")).split(", ")
        if interface.get("state") == "absent" and MULTUS in sources and DOMAIN not in sources:
            return "later"
        attached = by_interface.get(entry.get("podInterfaceName"))
        if attached is not None and not _same_network(run, network, str(attached.get("name", ""))):
            return "now"
    return None


def _same_network(run: VmiPass, network: Json, attached: str) -> bool:
    wanted = text_at(network, "multus", "networkName")
    return attached in {wanted, f"{text_at(run.vmi, 'metadata', 'namespace')}/{wanted}"}

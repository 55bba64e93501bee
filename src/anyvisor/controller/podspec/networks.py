"""Pod networks: the primary one, and secondary ones that Multus attaches by an annotation.

Source: the Kubernetes network plumbing group's de-facto standard for network attachments.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from anyvisor.api.meta import Json, annotations, object_at, text_at
from anyvisor.api.names import secondary_interface
from anyvisor.controller import words

PRIMARY_INTERFACE: Final = "eth0"
_ORDINAL: Final = re.compile(r"net[0-9]+")
_STATUS: Final = msgspec.json.Decoder(list[dict[str, Any]])


class UnknownBindingError(Exception):
    """An interface names a binding plugin that the configuration does not have."""


def reported(pod: Json) -> list[Json]:
    """The networks that the pod's annotation reports; none where it cannot be read."""
    text = annotations(pod).get(words.NETWORK_STATUS, "")
    try:
        return _STATUS.decode(text) if text else []
    except msgspec.MsgspecError:
        return []


def primary(networks: Sequence[Json]) -> Json | None:
    """The network that is the pod's own: the pod network, or a Multus network marked as default."""
    return next((one for one in networks if "pod" in one or _is_default(one)), None)


def _is_default(network: Json) -> bool:
    return object_at(network, "multus").get("default") is True


def secondary(networks: Sequence[Json]) -> list[Json]:
    """The networks that are attached beside the pod's own."""
    return [one for one in networks if "multus" in one and not _is_default(one)]


def primary_interface(reports: Sequence[Json]) -> str:
    """The pod's interface on its own network."""
    found = (str(one.get("interface", "")) for one in reports if one.get("default") is True)
    return next(filter(None, found), PRIMARY_INTERFACE)


def interface_names(networks: Sequence[Json], reports: Sequence[Json]) -> dict[str, str]:
    """The pod interface of each network by the network's name.

    Hashed from the name, so that it stays when networks come and go; pods of old have ordinal names.
    """
    ordinal = any(_ORDINAL.fullmatch(str(one.get("interface", ""))) for one in reports)
    names = {
        str(one.get("name", "")): f"net{index}" if ordinal else secondary_interface(str(one.get("name", "")))
        for index, one in enumerate(secondary(networks), start=1)
    }
    own = primary(networks)
    if own is not None:
        names[str(own.get("name", ""))] = PRIMARY_INTERFACE
    return names


def selection(
    namespace: str,
    interfaces: Sequence[Json],
    networks: Sequence[Json],
    names: Mapping[str, str],
    bindings: Json,
) -> str:
    """The annotation that asks for the secondary networks; empty for none. Raises UnknownBindingError."""
    elements: list[Json] = []
    by_name = {one.get("name"): one for one in interfaces}
    for network in networks:
        name = str(network.get("name", ""))
        interface = by_name.get(name, {})
        if network in secondary(networks):
            elements.append(_element(namespace, network, names[name], str(interface.get("macAddress", ""))))
        plugin = text_at(interface, "binding", "name")
        if plugin:
            elements += _plugin_element(namespace, name, plugin, bindings)
    return json.dumps(elements, separators=(",", ":")) if elements else ""


class UnknownAttachmentError(Exception):
    """A network names a NetworkAttachmentDefinition that does not exist."""


def known(namespace: str, networks: Sequence[Json], definitions: Mapping[str, Json] | None) -> Mapping[str, Json]:
    """The definitions that there are; raises UnknownAttachmentError where some are named and nobody serves the kind."""
    if definitions is not None:
        return definitions
    wanted = attachment_names(namespace, networks)
    if wanted:
        raise UnknownAttachmentError(
            f"spec.networks names NetworkAttachmentDefinition {wanted[0]}, and the cluster serves none of that kind; "
            "install Multus, which attaches pods to further networks, or use the pod network alone"
        )
    return {}


def device_resources(namespace: str, networks: Sequence[Json], definitions: Mapping[str, Json]) -> dict[str, int]:
    """How many of which device the networks' definitions stand for; raises UnknownAttachmentError."""
    found: dict[str, int] = {}
    for wanted in attachment_names(namespace, networks):
        definition = definitions.get(wanted)
        if definition is None:
            raise UnknownAttachmentError(
                f"spec.networks names NetworkAttachmentDefinition {wanted}, which does not exist; create it, or "
                "correct the network's networkName"
            )
        resource = annotations(definition).get("k8s.v1.cni.cncf.io/resourceName", "")
        if resource:
            found[resource] = found.get(resource, 0) + 1
    return found


def attachment_names(namespace: str, networks: Sequence[Json]) -> list[str]:
    """The NetworkAttachmentDefinitions that networks name, as `namespace/name`; one for each network."""
    named = (text_at(one, "multus", "networkName") for one in networks if "multus" in one)
    return ["/".join(_attachment(namespace, reference)) for reference in named]


def _attachment(namespace: str, reference: str) -> tuple[str, str]:
    """(namespace, name) of a NetworkAttachmentDefinition."""
    given, slash, name = reference.partition("/")
    return (given, name) if slash else (namespace, given)


def _element(namespace: str, network: Json, interface: str, mac: str) -> Json:
    space, name = _attachment(namespace, text_at(network, "multus", "networkName"))
    element: Json = {"name": name, "namespace": space}
    if mac:
        element["mac"] = mac
    return {**element, "interface": interface}


def _plugin_element(namespace: str, network: str, plugin: str, bindings: Json) -> list[Json]:
    if plugin not in bindings:
        raise UnknownBindingError(
            f"network binding {plugin!r} of interface {network!r} is not registered; add it to "
            "network.binding in the KubeVirt configuration"
        )
    reference = text_at(bindings, plugin, "networkAttachmentDefinition")
    if not reference:
        return []
    space, name = _attachment(namespace, reference)
    return [{"name": name, "namespace": space, "cni-args": {"logicNetworkName": network}}]

"""NetworkAttachmentDefinitions of type bridge: what one says, and the link that it stands for. Pure.

https://www.cni.dev/plugins/current/main/bridge/ and the Kubernetes network plumbing group's standard, version 1.3.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anyvisor.api.meta import Json, list_at, object_at, text_at

GROUP: Final = "k8s.cni.cncf.io"
PLURAL: Final = "network-attachment-definitions"
WANTED: Final = "k8s.v1.cni.cncf.io/networks"
STATUS: Final = "k8s.v1.cni.cncf.io/network-status"
TYPES: Final = ("bridge", "cnv-bridge")
_SERVED: Final = frozenset(
    {
        *("cniVersion", "name", "type", "bridge", "mtu", "vlan"),
        *("dns", "capabilities", "runtimeConfig", "preserveDefaultVlan"),
    }
)
_NAME: Final = re.compile(r"[^\s/]{1,15}")
MAX_VLAN: Final = 4094


class AttachmentError(Exception):
    """A network cannot be attached; the message is a sentence for the machine."""


@dataclass(frozen=True, slots=True)
class BridgeNetwork:
    """What a definition asks for."""

    bridge: str
    mtu: int = 0
    """0 = the bridge's."""
    vlan: int = 0
    """0 = none."""


def definition() -> Json:
    """The CustomResourceDefinition, as Multus installs it on a cluster."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"config": {"type": "string"}}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": "NetworkAttachmentDefinition",
                "listKind": "NetworkAttachmentDefinitionList",
                "plural": PLURAL,
                "singular": "network-attachment-definition",
                "shortNames": ["net-attach-def"],
            },
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def read(attachment: Json, name: str) -> BridgeNetwork:
    """What a NetworkAttachmentDefinition says; raises AttachmentError."""
    where = f"NetworkAttachmentDefinition {name}: spec.config"
    try:
        config = json.loads(text_at(attachment, "spec", "config") or "null")
    except ValueError as error:
        raise AttachmentError(f"{where} is no JSON: {error}") from error
    plugin = _plugin(config, where)
    kind = plugin.get("type")
    if kind not in TYPES:
        raise AttachmentError(f"{where} is of type {kind!r}; this machine serves type bridge: use a bridge of the host")
    _refuse_unserved(plugin, where)
    bridge, mtu, vlan = plugin.get("bridge"), plugin.get("mtu", 0), plugin.get("vlan", 0)
    if not isinstance(bridge, str) or not _NAME.fullmatch(bridge):
        raise AttachmentError(f"{where} names no bridge: set `bridge` to a bridge of this host")
    if not isinstance(mtu, int) or not isinstance(vlan, int) or not 0 <= vlan <= MAX_VLAN or not 0 <= mtu < 1 << 16:
        raise AttachmentError(f"{where}: mtu and vlan are numbers, vlan from 1 to {MAX_VLAN}")
    return BridgeNetwork(bridge, mtu, vlan)


def _plugin(config: Any, where: str) -> Mapping[str, Any]:
    """The plug-in of a configuration or of a list of one."""
    if not isinstance(config, dict):
        raise AttachmentError(f"{where} is no object: write a CNI configuration of type bridge")
    if "plugins" not in config:
        return object_at({"config": config}, "config")
    listed = list_at({"config": config}, "config", "plugins")
    if len(listed) != 1:
        raise AttachmentError(f"{where} has a list of plug-ins; this machine serves exactly one, of type bridge")
    return listed[0]


def _refuse_unserved(plugin: Mapping[str, Any], where: str) -> None:
    for field, value in plugin.items():
        if value in (None, False, "", 0, {}, []):
            continue
        if field == "ipam":
            why = "ipam is not served; remove it, and give the guest its address by DHCP or by hand"
            raise AttachmentError(f"{where}: {why}")
        if field not in _SERVED:
            raise AttachmentError(f"{where}: {field} is not served; remove it")


def link_batch(link: str, interface: str, namespace: str, mtu: int, wanted: BridgeNetwork) -> str:
    """A pair of links between the bridge and a pod's namespace, for `ip -batch`."""
    return "\n".join(
        (
            f"link add {link} mtu {mtu} type veth peer name {interface} mtu {mtu} netns {namespace}",
            f"link set {link} master {wanted.bridge} addrgenmode none",
            f"link set {link} up",
            "",
        )
    )


def network_status(pod_ip: str, attached: Sequence[tuple[str, str, str]] = ()) -> str:
    """The annotation's text: the pod's own network, then (name, interface, MAC) of the others."""
    own: Json = {"name": "anyvisor", "interface": "eth0", "ips": [pod_ip] if pod_ip else [], "default": True, "dns": {}}
    others: list[Json] = [
        {"name": name, "interface": interface, "mac": mac, "dns": {}} for name, interface, mac in attached
    ]
    return json.dumps([own, *others], separators=(",", ":"))

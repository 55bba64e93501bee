"""What a NetworkAttachmentDefinition says."""

import json
from typing import Any

import pytest

from anyvisor.embedded.podnetwork.attachments import AttachmentError, BridgeNetwork, network_status, read
from anyvisor.embedded.podnetwork.secondary import Wanted, wanted


def attachment(config: Any) -> dict[str, Any]:
    return {"spec": {"config": config if isinstance(config, str) else json.dumps(config)}}


BRIDGE = {"cniVersion": "0.3.1", "name": "lan", "type": "bridge", "bridge": "br0"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (BRIDGE, BridgeNetwork("br0")),
        ({**BRIDGE, "type": "cnv-bridge", "ipam": {}, "macspoofchk": False}, BridgeNetwork("br0")),
        ({**BRIDGE, "mtu": 9000, "vlan": 12}, BridgeNetwork("br0", 9000, 12)),
        ({"cniVersion": "0.3.1", "name": "lan", "plugins": [BRIDGE]}, BridgeNetwork("br0")),
    ],
)
def test_what_is_served(config: Any, expected: BridgeNetwork) -> None:
    assert read(attachment(config), "default/lan") == expected


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("", "is no object"),
        ("{", "is no JSON"),
        ([], "is no object"),
        ({"type": "macvlan"}, "of type 'macvlan'; this machine serves type bridge"),
        ({"type": "bridge"}, "names no bridge"),
        ({**BRIDGE, "bridge": "../x"}, "names no bridge"),
        ({**BRIDGE, "bridge": "br0 up\nlink delete eth0"}, "names no bridge"),
        ({**BRIDGE, "vlan": 5000}, "vlan from 1 to 4094"),
        ({**BRIDGE, "mtu": "large"}, "mtu and vlan are numbers"),
        ({**BRIDGE, "ipam": {"type": "host-local"}}, "ipam is not served"),
        ({**BRIDGE, "isGateway": True}, "isGateway is not served; remove it"),
        ({**BRIDGE, "macspoofchk": True}, "macspoofchk is not served; remove it"),
        ({"plugins": [BRIDGE, {"type": "tuning"}]}, "exactly one, of type bridge"),
    ],
)
def test_what_is_not_served_says_so(config: Any, sentence: str) -> None:
    with pytest.raises(AttachmentError, match=sentence) as caught:
        read(attachment(config), "default/lan")
    assert str(caught.value).startswith("NetworkAttachmentDefinition default/lan: spec.config")


def test_a_pods_annotations() -> None:
    text = '[{"name":"lan","namespace":"lab","interface":"pod1"}]'
    pod: dict[str, Any] = {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": text}}}
    assert wanted(pod) == [Wanted("lab", "lan", "pod1")]
    assert wanted({"metadata": {}}) == []
    own, other = json.loads(network_status("10.64.0.2", [("lab/lan", "pod1", "02:00:00:00:00:01")]))
    assert (own["default"], own["interface"], own["ips"]) == (True, "eth0", ["10.64.0.2"])
    assert (other["name"], other["interface"], other["mac"]) == ("lab/lan", "pod1", "02:00:00:00:00:01")

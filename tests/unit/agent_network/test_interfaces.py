"""What a VMI says about its network."""

from typing import Any

import pytest

from anyvisor.agent.network import attach, rules
from anyvisor.agent.network.bridged import other_mac, parse_note
from anyvisor.agent.network.interfaces import Port, mac_address, read
from anyvisor.agent.open_error import OpenError
from anyvisor.hri.v1.machine_spec_pb2 import Nic


def vmi(*interfaces: dict[str, Any], uid: str = "u-1", owner: str = "", **devices: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "alpha", "namespace": "default", "uid": uid}
    if owner:
        metadata["ownerReferences"] = [{"kind": "VirtualMachine", "name": "alpha", "uid": owner, "controller": True}]
    return {
        "metadata": metadata,
        "spec": {
            "domain": {
                "cpu": {"sockets": 2, "cores": 2},
                "devices": {"interfaces": [{"name": "default", **each} for each in interfaces], **devices},
            },
            "networks": [{"name": "default", "pod": {}}],
        },
    }


def test_defaults() -> None:
    [interface] = read(vmi({"masquerade": {}}))
    assert (str(interface.network), str(interface.gateway), str(interface.guest)) == (
        "10.0.2.0/24",
        "10.0.2.1",
        "10.0.2.2",
    )
    assert (interface.model, interface.ports, interface.queues) == (Nic.MODEL_VIRTIO, (), 1)


def test_everything() -> None:
    spec = vmi(
        {
            "masquerade": {},
            "model": "e1000e",
            "macAddress": "02-00-00-AA-BB-CC",
            "ports": [{"port": 80}, {"port": 53, "protocol": "UDP", "name": "dns"}],
            "state": "down",
            "pciAddress": "0000:01:00.0",
            "acpiIndex": 7,
            "dhcpOptions": {"bootFileName": "b", "ntpServers": ["192.0.2.1"], "privateOptions": [{"option": 240}]},
        },
        networkInterfaceMultiqueue=True,
    )
    spec["spec"]["networks"][0]["pod"]["vmNetworkCIDR"] = "10.11.12.0/24"
    [interface] = read(spec)
    assert str(interface.guest) == "10.11.12.2"
    assert interface.mac == "02:00:00:aa:bb:cc"
    assert interface.ports == (Port("tcp", 80), Port("udp", 53))
    assert (interface.link_down, interface.pci_address, interface.acpi_index) == (True, "0000:01:00.0", 7)
    assert interface.dhcp.private == ((240, ""),)
    assert interface.queues == 1, "only virtio has queues"


def test_multiqueue_has_a_queue_for_each_cpu() -> None:
    [interface] = read(vmi({"masquerade": {}}, networkInterfaceMultiqueue=True))
    assert interface.queues == 4


def test_absent_interfaces_and_none_at_all() -> None:
    assert read(vmi({"masquerade": {}, "state": "absent"})) == []
    assert read({"metadata": {"name": "a"}, "spec": {"domain": {}}}) == []


@pytest.mark.parametrize(
    ("interface", "field", "reason"),
    [
        ({"binding": {"name": "x"}}, "", "BindingNotSupported"),
        ({"sriov": {}}, "", "BindingNotSupported"),
        ({"masquerade": {}, "model": "vmxnet3"}, ".model", "ModelNotSupported"),
        ({"masquerade": {}, "macAddress": "02:00"}, ".macAddress", "MacAddressInvalid"),
        ({"masquerade": {}, "ports": [{"port": 0}]}, ".ports[0]", "PortInvalid"),
        ({"masquerade": {}, "ports": [{"port": 1}, {"port": 80, "protocol": "ICMP"}]}, ".ports[1]", "PortInvalid"),
        ({"masquerade": {}, "name": "other"}, "", "NetworkNotSupported"),
        ({"masquerade": {}, "dhcpOptions": {"ntpServers": ["x"]}}, ".dhcpOptions.ntpServers", "DhcpOptionsInvalid"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_place(interface: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(OpenError) as caught:
        read(vmi(interface))
    assert caught.value.field == f"spec.domain.devices.interfaces[0]{field}"
    assert (caught.value.reason, caught.value.retry) == (reason, False)


def test_a_second_interface_on_the_pod_network_is_refused() -> None:
    spec = vmi({"masquerade": {}}, {"masquerade": {}, "name": "second"})
    spec["spec"]["networks"].append({"name": "second", "pod": {}})
    with pytest.raises(OpenError, match="one interface"):
        read(spec)


@pytest.mark.parametrize("network", ["nonsense", "10.0.0.0/30", "fd00::/64"])
def test_networks_for_guests(network: str) -> None:
    spec = vmi({"masquerade": {}})
    spec["spec"]["networks"][0]["pod"]["vmNetworkCIDR"] = network
    with pytest.raises(OpenError, match="vmNetworkCIDR"):
        read(spec)


def secondary(*names: str) -> dict[str, Any]:
    bridged: list[dict[str, Any]] = [{"bridge": {}, "name": name} for name in names]
    spec = vmi({"masquerade": {}}, *bridged)
    spec["spec"]["networks"] += [{"name": name, "multus": {"networkName": "lan"}} for name in names]
    return spec


def test_further_interfaces_are_bridged_and_keep_their_names_when_others_go() -> None:
    first, blue, red = read(secondary("blue", "red"))
    assert (first.pod_interface, first.tap, first.bridged, first.secondary) == ("eth0", "tap0", False, False)
    assert (blue.bridged, blue.secondary) == (True, True)
    assert len({blue.pod_interface, blue.tap, blue.bridge, red.pod_interface, red.tap, red.bridge}) == 6
    assert max(map(len, (blue.pod_interface, blue.tap, blue.bridge))) <= 15
    assert read(secondary("red"))[1] == red
    translated = secondary("blue")
    translated["spec"]["domain"]["devices"]["interfaces"][1] = {"name": "blue", "masquerade": {}}
    with pytest.raises(OpenError, match="masquerade is for the pod network"):
        read(translated)


async def test_a_bridged_interface_without_a_namespace_says_what_it_needs() -> None:
    with pytest.raises(OpenError, match="run `anyvisor up` as root") as caught:
        await attach(vmi({"bridge": {}}), pod={}, netns=None, adopted=False)
    assert caught.value.retry


@pytest.mark.parametrize(
    ("text", "address", "gateway", "routed"),
    [
        ("10.64.0.5/32,10.64.0.1", "10.64.0.5/32", "10.64.0.1", True),
        ("10.64.0.5/22,10.64.0.1", "10.64.0.5/22", "10.64.0.1", False),
        ("10.64.0.5/22,", "10.64.0.5/22", "None", False),
    ],
)
def test_what_a_pod_had_is_noted_and_read_again(text: str, address: str, gateway: str, routed: bool) -> None:
    found = parse_note(text)
    assert found is not None
    assert (str(found.own), str(found.gateway), bool(found.routes())) == (address, gateway, routed)
    assert found.note() == text


@pytest.mark.parametrize("text", ["", "anything", "10.0.0.0/99,", "x,y", "10.0.0.1/24,nowhere"])
def test_an_alias_of_somebody_else_is_no_note(text: str) -> None:
    assert parse_note(text) is None


def test_the_pods_end_has_another_address_than_the_guest() -> None:
    assert other_mac("02:00:00:00:00:07") == "02:00:00:00:00:87"
    assert other_mac("de:ad:be:ef:00:ff") == "de:ad:be:ef:00:7f"


def test_mac_addresses_are_stable_for_a_vm_and_differ_between_vms() -> None:
    def mac(**changes: str) -> str:
        return mac_address(vmi({}, **changes), {"name": "default"}, "")

    assert mac(uid="1", owner="vm") == mac(uid="2", owner="vm")
    assert mac(uid="1") == mac(uid="1")
    assert len({mac(uid="1"), mac(uid="2"), mac(uid="1", owner="vm")}) == 3
    first = int(mac(uid="1").split(":")[0], 16)
    assert first & 3 == 2, "locally administered, unicast"


def test_rules_forward_all_ports_or_those_that_are_named() -> None:
    [everything] = read(vmi({"masquerade": {}}))
    assert 'iifname "eth0" dnat to 10.0.2.2' in rules.translation(everything)
    [some] = read(
        vmi({"masquerade": {}, "ports": [{"port": 443}, {"port": 80}, {"port": 80}, {"port": 1, "protocol": "SCTP"}]})
    )
    text = rules.translation(some)
    assert 'iifname "eth0" tcp dport { 80, 443 } dnat to 10.0.2.2' in text
    assert 'iifname "eth0" sctp dport { 1 } dnat to 10.0.2.2' in text
    assert "udp" not in text


async def test_without_a_namespace_the_vmm_has_its_own_network() -> None:
    network = await attach(vmi({"masquerade": {}}), netns=None, pod={}, adopted=False)
    [nic] = network.nics
    assert nic.user.network == "10.0.2.0/24"
    assert nic.user.hostname == "alpha"
    assert network.descriptors == {}
    assert "ipAddress" not in network.status[0]
    network.close()

"""Rules for networks and the interfaces that join them."""

import re
from itertools import pairwise

from anyvisor.admission.config import ClusterConfig
from anyvisor.admission.names import is_ipv4, is_mac, is_pci_address, is_port_name
from anyvisor.admission.result import NOT_FOUND, Causes
from anyvisor.admission.values import Obj, integer, items, mapping, shown, strings, text
from anyvisor.admission.view import Spec

MODELS = ("virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139")
BINDINGS = ("bridge", "masquerade", "sriov", "passtBinding", "binding")
STATES = ("", "up", "down", "absent")
DISCONTINUED = ("slirp", "passt", "macvtap")

_SOURCES = ("pod", "multus", "resourceClaim")
_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")
_RESERVED_MAC = "02:00:00:00:00:00"
_PORT_MAX = 65535
_RANGES_MAX = 10
_PRIVATE_OPTIONS = range(224, 255)


def discontinued(spec: Spec, out: Causes, *, told: str = "") -> None:
    """Bindings that no longer exist. `told`: where clients of the API expect the spec, if that is not where it is."""
    for index, interface in enumerate(spec.interfaces):
        for name in DISCONTINUED:
            if interface.get(name) is not None:
                inside = f"domain.devices.interfaces[{index}].{name}"
                at = f"{spec.at}.{inside}"
                message = f"{at}: the {name} binding is gone since v1.3; use masquerade, bridge or passtBinding"
                out.invalid(f"{told or spec.at}.{inside}", message, at)


def networks(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    """All rules for networks and interfaces."""
    _default_networks(spec, out)
    _network_sources(spec, out)
    by_name = {text(network.get("name")): network for network in spec.networks}
    _states(spec, out)
    for index, interface in enumerate(spec.interfaces):
        at = f"{spec.at}.domain.devices.interfaces[{index}]"
        network = by_name.get(text(interface.get("name")), {})
        _binding(at, interface, network, config, out)
        _fields(at, interface, out)
        _ports(at, interface, network, out)
        _port_ranges(at, interface, network, config, out)
        _dhcp(spec.at, at, interface, out)
    _pairs(spec, by_name, out)
    _claimed_networks(spec, config, out)


def _default_networks(spec: Spec, out: Causes) -> None:
    pods = sum(network.get("pod") is not None for network in spec.networks)
    defaults = sum(mapping(network.get("multus")).get("default") is True for network in spec.networks)
    at = f"{spec.at}.networks"
    if pods > 1:
        out.duplicate(f"{spec.at}.interfaces", f"{at} has {pods} pod networks; a pod has one: keep one of them", at)
    if defaults > 1:
        out.invalid(at, f"{at} has {defaults} multus networks with default: true; keep it on one of them")
    if pods and defaults:
        out.invalid(at, f"{at} has a pod network and a multus network that replaces it (default: true); keep one")


def _network_sources(spec: Spec, out: Causes) -> None:
    nameless_told = False
    for index, network in enumerate(spec.networks):
        at = f"{spec.at}.networks[{index}]"
        count = sum(network.get(source) is not None for source in _SOURCES)
        if count != 1:
            told = f"is {count} kinds of network at once" if count else "does not say what kind of network it is"
            out.required(at, f"{at} {told}; give exactly one of {', '.join(_SOURCES)}")
        multus = network.get("multus")
        if multus is not None and not nameless_told and not text(mapping(multus).get("networkName")):
            nameless_told = True
            out.required(
                at, f"{at}.multus.networkName is missing; name a network attachment", f"{at}.multus.networkName"
            )


def _states(spec: Spec, out: Causes) -> None:
    default = next(
        (
            text(network.get("name"))
            for network in spec.networks
            if network.get("pod") is not None or mapping(network.get("multus")).get("default") is True
        ),
        None,
    )
    for index, interface in enumerate(spec.interfaces):
        state, at = text(interface.get("state")), f"{spec.at}.domain.devices.interfaces[{index}].state"
        if state not in STATES:
            out.invalid(at, f"{at} is {state!r}; use one of {', '.join(STATES[1:])}")
        elif interface.get("sriov") is not None and state in ("up", "down"):
            out.invalid(at, f"{at}: the link of an SR-IOV interface cannot be set to {state}; remove the state")
        elif state == "absent":
            if interface.get("bridge") is None:
                out.invalid(at, f"{at}: only an interface with the bridge binding can be taken away while running")
            if default == text(interface.get("name")):
                out.invalid(at, f"{at}: the interface of the default network cannot be taken away")


def _binding(at: str, interface: Obj, network: Obj, config: ClusterConfig, out: Causes) -> None:
    count = sum(interface.get(name) is not None for name in BINDINGS)
    if count != 1:
        told = f"has {count} bindings" if count else "has no binding"
        out.invalid(at, f"{at} {told}; give exactly one of {', '.join(BINDINGS)}")
    on_pod_network = network.get("pod") is not None
    if interface.get("masquerade") is not None:
        if not on_pod_network:
            out.invalid(
                f"{at}.name", f"{at}: masquerade works on the pod network only; use bridge or join a pod network"
            )
        if interface.get("macAddress") == _RESERVED_MAC:
            out.invalid(f"{at}.macAddress", f"{at}.macAddress {_RESERVED_MAC} is the gateway's own; choose another")
    if interface.get("bridge") is not None and on_pod_network and not config.bridge_on_pod_network:
        out.invalid(
            f"{at}.name",
            f"{at}: the cluster does not permit a bridge on the pod network "
            "(network.permitBridgeInterfaceOnPodNetwork); use masquerade",
        )
    if interface.get("passtBinding") is not None:
        if not config.on("PasstBinding"):
            out.invalid(
                f"{at}.name", f"{at}: passtBinding needs the feature gate PasstBinding; enable it or use masquerade"
            )
        if not on_pod_network:
            out.invalid(f"{at}.name", f"{at}: passtBinding works on the pod network only")


def _fields(at: str, interface: Obj, out: Causes) -> None:
    name, model = text(interface.get("name")), text(interface.get("model"))
    mac, address = text(interface.get("macAddress")), text(interface.get("pciAddress"))
    if not _NAME.match(name):
        out.invalid(f"{at}.name", f"{at}.name is {name!r}; use letters, digits, '-' and '_' only")
    if model and model not in MODELS:
        out.unsupported(f"{at}.model", f"{at}.model is {model!r}; use one of {', '.join(MODELS)}")
    if mac and not is_mac(mac):
        out.invalid(f"{at}.macAddress", f"{at}.macAddress is {mac!r}; write 6 bytes, such as 02:00:00:12:34:56")
    if address and not is_pci_address(address):
        out.invalid(
            f"{at}.pciAddress", f"{at}.pciAddress is {address!r}; write it as 0000:81:01.0 (domain:bus:slot.function)"
        )


def _ports(at: str, interface: Obj, network: Obj, out: Causes) -> None:
    if network.get("pod") is None:
        return
    seen: set[str] = set()
    for index, port in enumerate(items(interface.get("ports"))):
        where = f"{at}.ports[{index}]"
        name, number = text(port.get("name")), integer(port.get("port"))
        if name:
            if name in seen:
                out.duplicate(f"{where}.name", f"{where}.name {name!r} is taken by another port; rename one")
            if not is_port_name(name):
                out.invalid(
                    f"{where}.name",
                    f"{where}.name is {name!r}; use at most 15 of a-z, 0-9 and single '-', with at least one letter",
                )
            seen.add(name)
        if number == 0:
            out.required(f"{where}.port", f"{where}.port is missing; give a port from 1 to {_PORT_MAX}")
        elif not 0 < number <= _PORT_MAX:
            out.invalid(f"{where}.port", f"{where}.port is {number}; give a port from 1 to {_PORT_MAX}")
        if text(port.get("protocol")) not in ("", "TCP", "UDP"):
            out.invalid(f"{where}.protocol", f"{where}.protocol is {shown(port.get('protocol'))}; use TCP or UDP")


def _port_ranges(at: str, interface: Obj, network: Obj, config: ClusterConfig, out: Causes) -> None:
    ranges = items(interface.get("portRanges"))
    if not ranges:
        return
    if not config.on("PortRangesSpec"):
        out.invalid(
            f"{at}.name",
            f"{at}.portRanges needs the feature gate PortRangesSpec; enable it or list the ports",
            f"{at}.portRanges",
        )
        return
    if network.get("pod") is None:
        return
    if interface.get("ports"):
        out.invalid(f"{at}.name", f"{at} has both ports and portRanges; keep one of them", f"{at}.portRanges")
    if interface.get("masquerade") is None:
        out.invalid(f"{at}.name", f"{at}.portRanges works with the masquerade binding only", f"{at}.portRanges")
    if len(ranges) > _RANGES_MAX:
        out.invalid(f"{at}.portRanges", f"{at}.portRanges has {len(ranges)} ranges; at most {_RANGES_MAX} are possible")
        return
    _range_bounds(f"{at}.portRanges", ranges, out)


def _range_bounds(at: str, ranges: list[Obj], out: Causes) -> None:
    by_protocol: dict[str, list[tuple[int, int]]] = {"TCP": [], "UDP": []}
    for index, ports in enumerate(ranges):
        start, end, protocol = integer(ports.get("start")), integer(ports.get("end")), text(ports.get("protocol"))
        where = f"{at}[{index}]"
        if protocol not in by_protocol:
            out.invalid(f"{where}.protocol", f"{where}.protocol is {shown(ports.get('protocol'))}; use TCP or UDP")
        elif not 0 < start <= _PORT_MAX:
            out.invalid(f"{where}.start", f"{where}.start is {start}; give a port from 1 to {_PORT_MAX}")
        elif not 0 < end <= _PORT_MAX:
            out.invalid(f"{where}.end", f"{where}.end is {end}; give a port from 1 to {_PORT_MAX}")
        elif start > end:
            out.invalid(f"{where}.start", f"{where}.start ({start}) must not be more than end ({end})")
        else:
            by_protocol[protocol].append((start, end))
    for protocol, spans in by_protocol.items():
        spans.sort()
        for (_, last), (start, end) in pairwise(spans):
            if start <= last:
                out.invalid(at, f"{at}: the {protocol} range {start}-{end} overlaps another; join or shorten them")


def _dhcp(spec_at: str, at: str, interface: Obj, out: Causes) -> None:
    if interface.get("dhcpOptions") is None:
        return
    options = mapping(interface["dhcpOptions"])
    private, path = items(options.get("privateOptions")), f"{at}.dhcpOptions.privateOptions"
    numbers = [integer(option.get("option")) for option in private]
    if len(set(numbers)) < len(numbers):
        out.invalid(spec_at, f"{path} gives an option twice; keep one of each number", path)
    for index, number in enumerate(numbers):
        if number not in _PRIVATE_OPTIONS:
            where = f"{path}[{index}].option"
            out.invalid(spec_at, f"{where} is {number}; private options are 224 to 254", where)
    for index, server in enumerate(strings(options.get("ntpServers"))):
        if not is_ipv4(server):
            where = f"{at}.dhcpOptions.ntpServers[{index}]"
            out.invalid(where, f"{where} is {server!r}; give an IPv4 address (DHCP hands out no names)")


def _pairs(spec: Spec, by_name: dict[str, Obj], out: Causes) -> None:
    networks_at, interfaces_at = f"{spec.at}.networks", f"{spec.at}.domain.devices.interfaces"
    interface_names: set[str] = set()
    for index, interface in enumerate(spec.interfaces):
        name, at = text(interface.get("name")), f"{interfaces_at}[{index}].name"
        if name in interface_names:
            out.duplicate(at, f"{at}: two interfaces are named {name!r}; a network is joined by one interface")
        interface_names.add(name)
        if name not in by_name:
            out.invalid(at, f"{at}: there is no network named {name!r}; add it under {networks_at}")
    network_names: set[str] = set()
    for index, network in enumerate(spec.networks):
        name, at = text(network.get("name")), f"{networks_at}[{index}].name"
        if name in network_names:
            out.duplicate(at, f"{at}: two networks are named {name!r}; rename one")
        network_names.add(name)
        if name not in interface_names:
            out.required(
                at, f"{at}: no interface is named {name!r}; add one under {interfaces_at} or remove the network"
            )


def claimed_pairs(spec: Spec) -> dict[str, int]:
    """The claim and request of each network that has both, with the index of its first use."""
    pairs: dict[str, int] = {}
    for index, network in enumerate(spec.networks):
        claim = mapping(network.get("resourceClaim"))
        name, request = text(claim.get("claimName")), text(claim.get("requestName"))
        if name and request:
            pairs.setdefault(f"{name}/{request}", index)
    return pairs


def _claimed_networks(spec: Spec, config: ClusterConfig, out: Causes) -> None:
    claimed = [(i, network) for i, network in enumerate(spec.networks) if network.get("resourceClaim") is not None]
    if not claimed:
        return
    at = f"{spec.at}.networks"
    if not config.on("NetworkDevicesWithDRA"):
        out.invalid(at, f"{at}: resourceClaim needs the feature gate NetworkDevicesWithDRA; enable it or use multus")
        return
    if any(network.get("multus") is not None for network in spec.networks):
        out.invalid(at, f"{at} mixes multus networks and resource claims in one VM; use one of the two")
        return
    interfaces = {text(interface.get("name")): interface for interface in reversed(spec.interfaces)}
    claims = {text(claim.get("name")) for claim in items(spec.raw.get("resourceClaims"))}
    first = claimed_pairs(spec)
    for index, network in claimed:
        interface = interfaces.get(text(network.get("name")))
        if interface is not None and interface.get("sriov") is None and interface.get("binding") is None:
            where = f"{spec.at}.domain.devices.interfaces"
            out.invalid(
                where, f"{where}: the network {shown(network.get('name'))} is a device; bind it by sriov or a plugin"
            )
        _claim_of_network(f"{at}[{index}]", index, network, claims, first, out)


def _claim_of_network(at: str, index: int, network: Obj, claims: set[str], first: dict[str, int], out: Causes) -> None:
    claim = mapping(network["resourceClaim"])
    name, request = text(claim.get("claimName")), text(claim.get("requestName"))
    for key, value in (("claimName", name), ("requestName", request)):
        if not value:
            out.required(f"{at}.resourceClaim.{key}", f"{at}.resourceClaim.{key} is missing")
    if not name or not request:
        return
    if name not in claims:
        where = f"{at}.resourceClaim.claimName"
        out.add(NOT_FOUND, where, f"{where}: the spec has no resourceClaims entry named {name!r}; add it")
    if first.get(f"{name}/{request}", index) != index:
        out.duplicate(at, f"{at}: the device {name}/{request} is already used by another network")

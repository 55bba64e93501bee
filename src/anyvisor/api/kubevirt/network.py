"""Undocumented."""

from msgspec import field

from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32


class MultusNetwork(Model, frozen=True, kw_only=True):
    """Undocumented."""

    default: bool | None = None
    network_name: str


class PodNetwork(Model, frozen=True, kw_only=True):
    """Undocumented."""

    vm_ipv6_network_cidr: str | None = field(default=None, name="vmIPv6NetworkCIDR")
    vm_network_cidr: str | None = field(default=None, name="vmNetworkCIDR")


class ClaimRequest(Model, frozen=True, kw_only=True):
    """Undocumented."""

    claim_name: str | None = None
    request_name: str | None = None


class Network(Model, frozen=True, kw_only=True):
    """Undocumented."""

    multus: MultusNetwork | None = None
    name: str
    pod: PodNetwork | None = None
    resource_claim: ClaimRequest | None = None


class PluginBinding(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: str


class InterfaceBridge(Model, frozen=True, kw_only=True):
    """Undocumented."""


class DHCPPrivateOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    option: Int32
    value: str


class DHCPOptions(Model, frozen=True, kw_only=True):
    """Undocumented."""

    boot_file_name: str | None = None
    ntp_servers: tuple[str, ...] | None = None
    private_options: tuple[DHCPPrivateOptions, ...] | None = None
    tftp_server_name: str | None = None


class DeprecatedInterfaceMacvtap(Model, frozen=True, kw_only=True):
    """Undocumented."""


class InterfaceMasquerade(Model, frozen=True, kw_only=True):
    """Undocumented."""


class DeprecatedInterfacePasst(Model, frozen=True, kw_only=True):
    """Undocumented."""


class InterfacePasstBinding(Model, frozen=True, kw_only=True):
    """Undocumented."""


class PortRange(Model, frozen=True, kw_only=True):
    """Undocumented."""

    end: Int32
    protocol: str
    start: Int32


class Port(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: str | None = None
    port: Int32
    protocol: str | None = None


class DeprecatedInterfaceSlirp(Model, frozen=True, kw_only=True):
    """Undocumented."""


class InterfaceSRIOV(Model, frozen=True, kw_only=True):
    """Undocumented."""


class Interface(Model, frozen=True, kw_only=True):
    """Undocumented."""

    acpi_index: Int32 | None = None
    binding: PluginBinding | None = None
    boot_order: Int32 | None = None
    bridge: InterfaceBridge | None = None
    dhcp_options: DHCPOptions | None = None
    mac_address: str | None = None
    macvtap: DeprecatedInterfaceMacvtap | None = None
    masquerade: InterfaceMasquerade | None = None
    model: str | None = None
    name: str
    passt: DeprecatedInterfacePasst | None = None
    passt_binding: InterfacePasstBinding | None = None
    pci_address: str | None = None
    port_ranges: tuple[PortRange, ...] | None = None
    ports: tuple[Port, ...] | None = None
    slirp: DeprecatedInterfaceSlirp | None = None
    sriov: InterfaceSRIOV | None = None
    state: str | None = None
    tag: str | None = None

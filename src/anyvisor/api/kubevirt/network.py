"""A guest's networks and the interfaces that stand on them."""

from msgspec import field

from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32


class MultusNetwork(Model, frozen=True, kw_only=True):
    """A network that a NetworkAttachmentDefinition describes."""

    default: bool | None = None
    """Whether it replaces the pod network."""
    network_name: str
    """`name` or `namespace/name` of the definition."""


class PodNetwork(Model, frozen=True, kw_only=True):
    """The pod's own network."""

    vm_ipv6_network_cidr: str | None = field(default=None, name="vmIPv6NetworkCIDR")
    """IPv6 range on the guest's side of address translation; `fd10:0:2::/120` when absent."""
    vm_network_cidr: str | None = field(default=None, name="vmNetworkCIDR")
    """IPv4 range on the guest's side of address translation; `10.0.2.0/24` when absent."""


class ClaimRequest(Model, frozen=True, kw_only=True):
    """A device request of a resource claim."""

    claim_name: str | None = None
    request_name: str | None = None


class Network(Model, frozen=True, kw_only=True):
    """One network; an interface of the same name stands on it."""

    multus: MultusNetwork | None = None
    name: str
    pod: PodNetwork | None = None
    resource_claim: ClaimRequest | None = None


class PluginBinding(Model, frozen=True, kw_only=True):
    """A binding that the configuration registers."""

    name: str


class InterfaceBridge(Model, frozen=True, kw_only=True):
    """The guest takes the pod's place on a bridge, with the pod's address."""


class DHCPPrivateOptions(Model, frozen=True, kw_only=True):
    """One site-specific DHCP option."""

    option: Int32
    """Number from 224 to 254."""
    value: str


class DHCPOptions(Model, frozen=True, kw_only=True):
    """What DHCP tells the guest beside its address."""

    boot_file_name: str | None = None
    ntp_servers: tuple[str, ...] | None = None
    private_options: tuple[DHCPPrivateOptions, ...] | None = None
    tftp_server_name: str | None = None


class DeprecatedInterfaceMacvtap(Model, frozen=True, kw_only=True):
    """No longer supported."""


class InterfaceMasquerade(Model, frozen=True, kw_only=True):
    """The guest stands behind address translation on the pod's address."""


class DeprecatedInterfacePasst(Model, frozen=True, kw_only=True):
    """No longer supported."""


class InterfacePasstBinding(Model, frozen=True, kw_only=True):
    """The guest's connections are made by a user-mode process."""


class PortRange(Model, frozen=True, kw_only=True):
    """Ports that are forwarded to the guest."""

    end: Int32
    protocol: str
    start: Int32


class Port(Model, frozen=True, kw_only=True):
    """A port that is forwarded to the guest."""

    name: str | None = None
    port: Int32
    protocol: str | None = None
    """`TCP` (the default) or `UDP`."""


class DeprecatedInterfaceSlirp(Model, frozen=True, kw_only=True):
    """No longer supported."""


class InterfaceSRIOV(Model, frozen=True, kw_only=True):
    """A virtual function of a network card, handed to the guest."""


class Interface(Model, frozen=True, kw_only=True):
    """One network interface of the guest, with exactly one way to connect it."""

    acpi_index: Int32 | None = None
    """Number from which a Linux guest names the interface."""
    binding: PluginBinding | None = None
    boot_order: Int32 | None = None
    """Position among all boot devices, from 1."""
    bridge: InterfaceBridge | None = None
    dhcp_options: DHCPOptions | None = None
    mac_address: str | None = None
    """Hardware address; chosen once and kept when absent."""
    macvtap: DeprecatedInterfaceMacvtap | None = None
    masquerade: InterfaceMasquerade | None = None
    model: str | None = None
    """`virtio` (the default), `e1000`, `e1000e`, `igb`, `ne2k_pci`, `pcnet` or `rtl8139`."""
    name: str
    """The name of the network that it stands on."""
    passt: DeprecatedInterfacePasst | None = None
    passt_binding: InterfacePasstBinding | None = None
    pci_address: str | None = None
    """Place on the guest's PCI bus, `0000:01:00.0`."""
    port_ranges: tuple[PortRange, ...] | None = None
    ports: tuple[Port, ...] | None = None
    """Ports to forward; all when absent."""
    slirp: DeprecatedInterfaceSlirp | None = None
    sriov: InterfaceSRIOV | None = None
    state: str | None = None
    """`up`, `down` (no carrier) or `absent` (taken out of a running guest)."""
    tag: str | None = None
    """Label that the guest finds in its cloud-init metadata."""

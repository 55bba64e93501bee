"""The guest's hardware: processor, memory, firmware, clock and features."""

from typing import Annotated

from anyvisor.api.kubevirt.devices import Devices, FeatureState
from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32, Int64, QuantityValue, Schema


class Chassis(Model, frozen=True, kw_only=True):
    """What SMBIOS says of the guest's chassis."""

    asset: str | None = None
    manufacturer: str | None = None
    serial: str | None = None
    sku: str | None = None
    version: str | None = None


class HPETTimer(Model, frozen=True, kw_only=True):
    """The high precision event timer."""

    present: bool | None = None
    tick_policy: str | None = None


class HypervTimer(Model, frozen=True, kw_only=True):
    """The reference time that Hyper-V guests read."""

    present: bool | None = None


class KVMTimer(Model, frozen=True, kw_only=True):
    """The paravirtual clock that Linux guests read."""

    present: bool | None = None


class PITTimer(Model, frozen=True, kw_only=True):
    """The programmable interval timer."""

    present: bool | None = None
    tick_policy: str | None = None


class RTCTimer(Model, frozen=True, kw_only=True):
    """The real time clock."""

    present: bool | None = None
    tick_policy: str | None = None
    """What happens to missed ticks: `delay` or `catchup`."""
    track: str | None = None
    """`guest` or `wall`."""


class Timer(Model, frozen=True, kw_only=True):
    """The guest's timers."""

    hpet: HPETTimer | None = None
    hyperv: HypervTimer | None = None
    kvm: KVMTimer | None = None
    pit: PITTimer | None = None
    rtc: RTCTimer | None = None


class ClockOffsetUTC(Model, frozen=True, kw_only=True):
    """The guest's clock starts at UTC."""

    offset_seconds: Int32 | None = None
    """Seconds that it is ahead."""


class Clock(Model, frozen=True, kw_only=True):
    """What the guest's clock says at start."""

    timer: Timer | None = None
    timezone: str | None = None
    """The guest's clock starts at the local time of this zone."""
    utc: ClockOffsetUTC | None = None


class CPUFeature(Model, frozen=True, kw_only=True):
    """One processor feature."""

    name: str
    policy: str | None = None
    """`require` (the default), `force`, `optional`, `disable` or `forbid`."""


class NUMAGuestMappingPassthrough(Model, frozen=True, kw_only=True):
    """The guest sees the host's NUMA nodes that its CPUs and memory are on."""


class NUMA(Model, frozen=True, kw_only=True):
    """The guest's NUMA nodes."""

    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = None


class Realtime(Model, frozen=True, kw_only=True):
    """Settings for guests with deadlines."""

    mask: str | None = None
    """Virtual CPUs that run with real-time priority, as `0-3,^1`; all when absent."""


class CPU(Model, frozen=True, kw_only=True):
    """The guest's processors."""

    cores: Int64 | None = None
    """Cores in each socket."""
    dedicated_cpu_placement: bool | None = None
    """Whether each virtual CPU gets a host CPU of its own."""
    features: tuple[CPUFeature, ...] | None = None
    isolate_emulator_thread: bool | None = None
    """Whether the emulator gets a host CPU of its own, too."""
    max_sockets: Int64 | None = None
    """The largest number of sockets that the guest can grow to."""
    model: str | None = None
    """A model's name, `host-model` or `host-passthrough`."""
    numa: NUMA | None = None
    realtime: Realtime | None = None
    sockets: Int64 | None = None
    """Sockets; more can be added while the guest runs, up to `maxSockets`."""
    threads: Int64 | None = None
    """Threads in each core."""


class FeatureAPIC(Model, frozen=True, kw_only=True):
    """The interrupt controller."""

    enabled: bool | None = None
    end_of_interrupt: bool | None = None


class FeatureSpinlocks(Model, frozen=True, kw_only=True):
    """How often a guest spins before it yields."""

    enabled: bool | None = None
    spinlocks: Int64 | None = None


class SyNICTimer(Model, frozen=True, kw_only=True):
    """Synthetic timers for Hyper-V guests."""

    direct: FeatureState | None = None
    enabled: bool | None = None


class TLBFlush(Model, frozen=True, kw_only=True):
    """Flushes of address translations by the hypervisor."""

    direct: FeatureState | None = None
    enabled: bool | None = None
    extended: FeatureState | None = None


class FeatureVendorID(Model, frozen=True, kw_only=True):
    """The vendor name that a Hyper-V guest sees."""

    enabled: bool | None = None
    vendorid: str | None = None
    """At most 12 characters."""


class FeatureHyperv(Model, frozen=True, kw_only=True):
    """Help for guests that expect Hyper-V, such as Windows."""

    evmcs: FeatureState | None = None
    frequencies: FeatureState | None = None
    ipi: FeatureState | None = None
    reenlightenment: FeatureState | None = None
    relaxed: FeatureState | None = None
    reset: FeatureState | None = None
    runtime: FeatureState | None = None
    spinlocks: FeatureSpinlocks | None = None
    synic: FeatureState | None = None
    synictimer: SyNICTimer | None = None
    tlbflush: TLBFlush | None = None
    vapic: FeatureState | None = None
    vendorid: FeatureVendorID | None = None
    vpindex: FeatureState | None = None


class HyperVPassthrough(Model, frozen=True, kw_only=True):
    """All such help that the host offers."""

    enabled: bool | None = None


class FeatureKVM(Model, frozen=True, kw_only=True):
    """How the hypervisor shows itself."""

    hidden: bool | None = None
    """Whether the guest can't see that it is virtualized by its signature."""


class Features(Model, frozen=True, kw_only=True):
    """What the guest's platform offers."""

    acpi: FeatureState | None = None
    apic: FeatureAPIC | None = None
    hyperv: FeatureHyperv | None = None
    hyperv_passthrough: HyperVPassthrough | None = None
    kvm: FeatureKVM | None = None
    pvspinlock: FeatureState | None = None
    smm: FeatureState | None = None


class ACPI(Model, frozen=True, kw_only=True):
    """Tables with a Windows licence, from volumes."""

    msdm_name_ref: str | None = None
    slic_name_ref: str | None = None


class BIOS(Model, frozen=True, kw_only=True):
    """Start by BIOS."""

    use_serial: bool | None = None
    """Whether the BIOS also writes to the serial console."""


class EFI(Model, frozen=True, kw_only=True):
    """Start by UEFI."""

    persistent: bool | None = None
    """Whether its variables outlive a stop."""
    secure_boot: bool | None = None
    """Whether only signed code is started; yes when absent."""


class Bootloader(Model, frozen=True, kw_only=True):
    """The firmware: BIOS or UEFI."""

    bios: BIOS | None = None
    efi: EFI | None = None


class KernelBootContainer(Model, frozen=True, kw_only=True):
    """An OCI image with a kernel."""

    image: str
    image_pull_policy: str | None = None
    image_pull_secret: str | None = None
    initrd_path: str | None = None
    """Absolute path of the initial RAM disk in the image."""
    kernel_path: str | None = None
    """Absolute path of the kernel in the image."""


class KernelBoot(Model, frozen=True, kw_only=True):
    """Start a kernel directly, without a boot loader."""

    container: KernelBootContainer | None = None
    kernel_args: str | None = None
    """The kernel's command line."""


class Firmware(Model, frozen=True, kw_only=True):
    """What starts the guest, and what identifies it."""

    acpi: ACPI | None = None
    bootloader: Bootloader | None = None
    kernel_boot: KernelBoot | None = None
    serial: str | None = None
    """The machine's serial number; chosen once and kept when absent."""
    uuid: str | None = None
    """The machine's UUID; chosen once and kept when absent."""


class DiskIOThreads(Model, frozen=True, kw_only=True):
    """Threads that are shared by disks."""

    supplemental_pool_thread_count: Int64 | None = None


class SEVAttestation(Model, frozen=True, kw_only=True):
    """The guest waits for proof before it starts."""


class SEVPolicy(Model, frozen=True, kw_only=True):
    """What the encrypted guest demands."""

    encrypted_state: bool | None = None
    """Whether its registers are encrypted as well."""


class SEV(Model, frozen=True, kw_only=True):
    """Memory encryption of AMD."""

    attestation: SEVAttestation | None = None
    dh_cert: str | None = None
    policy: SEVPolicy | None = None
    session: str | None = None


class SEVSNP(Model, frozen=True, kw_only=True):
    """Memory encryption and integrity of AMD."""


class TDX(Model, frozen=True, kw_only=True):
    """Memory encryption and integrity of Intel."""


class LaunchSecurity(Model, frozen=True, kw_only=True):
    """Protection of the guest from its host; exactly one kind."""

    sev: SEV | None = None
    snp: SEVSNP | None = None
    tdx: TDX | None = None


class Machine(Model, frozen=True, kw_only=True):
    """The board that the guest sees."""

    type: str | None = None
    """`q35` on amd64, `virt` on arm64, or a versioned name of one."""


class Hugepages(Model, frozen=True, kw_only=True):
    """The guest's memory is in huge pages."""

    page_size: str | None = None
    """`2Mi` or `1Gi`."""


class ReservedOverhead(Model, frozen=True, kw_only=True):
    """Memory to reserve beside the guest's."""

    added_overhead: QuantityValue | None = None
    mem_lock: Annotated[str | None, Schema(facts={"enum": ["NotRequired", "Required"]})] = None
    """Whether the memory must stay in RAM: `Required` or `NotRequired`."""


class Memory(Model, frozen=True, kw_only=True):
    """The guest's memory."""

    guest: QuantityValue | None = None
    """How much the guest sees."""
    hugepages: Hugepages | None = None
    max_guest: QuantityValue | None = None
    """How much the guest can grow to while it runs."""
    reserved_overhead: ReservedOverhead | None = None


class ResourceRequirements(Model, frozen=True, kw_only=True):
    """What the machine needs of its node."""

    limits: dict[str, QuantityValue] | None = None
    """What it may use at most."""
    overcommit_guest_overhead: bool | None = None
    """Whether the overhead is left out of the requests."""
    requests: dict[str, QuantityValue] | None = None
    """What is reserved for it."""


class DomainSpec(Model, frozen=True, kw_only=True):
    """The guest's hardware."""

    chassis: Chassis | None = None
    clock: Annotated[Clock | None, Schema(opaque=True)] = None
    cpu: CPU | None = None
    """The guest's processors; one when absent."""
    devices: Devices
    features: Features | None = None
    firmware: Firmware | None = None
    io_threads: DiskIOThreads | None = None
    io_threads_policy: str | None = None
    """`shared`, `auto` or `supplementalPool`."""
    launch_security: LaunchSecurity | None = None
    machine: Machine | None = None
    memory: Memory | None = None
    """The guest's memory."""
    reboot_policy: Annotated[str | None, Schema(facts={"enum": ["Reboot", "Terminate"]})] = None
    """What a guest's own restart does: `Reboot` (the default) or `Terminate`."""
    resources: ResourceRequirements | None = None

"""Undocumented."""

from typing import Annotated

from anyvisor.api.kubevirt.devices import Devices, FeatureState
from anyvisor.api.meta import Model
from anyvisor.api.wire import Int32, Int64, QuantityValue, Schema


class Chassis(Model, frozen=True, kw_only=True):
    """Undocumented."""

    asset: str | None = None
    manufacturer: str | None = None
    serial: str | None = None
    sku: str | None = None
    version: str | None = None


class HPETTimer(Model, frozen=True, kw_only=True):
    """Undocumented."""

    present: bool | None = None
    tick_policy: str | None = None


class HypervTimer(Model, frozen=True, kw_only=True):
    """Undocumented."""

    present: bool | None = None


class KVMTimer(Model, frozen=True, kw_only=True):
    """Undocumented."""

    present: bool | None = None


class PITTimer(Model, frozen=True, kw_only=True):
    """Undocumented."""

    present: bool | None = None
    tick_policy: str | None = None


class RTCTimer(Model, frozen=True, kw_only=True):
    """Undocumented."""

    present: bool | None = None
    tick_policy: str | None = None
    track: str | None = None


class Timer(Model, frozen=True, kw_only=True):
    """Undocumented."""

    hpet: HPETTimer | None = None
    hyperv: HypervTimer | None = None
    kvm: KVMTimer | None = None
    pit: PITTimer | None = None
    rtc: RTCTimer | None = None


class ClockOffsetUTC(Model, frozen=True, kw_only=True):
    """Undocumented."""

    offset_seconds: Int32 | None = None


class Clock(Model, frozen=True, kw_only=True):
    """Undocumented."""

    timer: Timer | None = None
    timezone: str | None = None
    utc: ClockOffsetUTC | None = None


class CPUFeature(Model, frozen=True, kw_only=True):
    """Undocumented."""

    name: str
    policy: str | None = None


class NUMAGuestMappingPassthrough(Model, frozen=True, kw_only=True):
    """Undocumented."""


class NUMA(Model, frozen=True, kw_only=True):
    """Undocumented."""

    guest_mapping_passthrough: NUMAGuestMappingPassthrough | None = None


class Realtime(Model, frozen=True, kw_only=True):
    """Undocumented."""

    mask: str | None = None


class CPU(Model, frozen=True, kw_only=True):
    """Undocumented."""

    cores: Int64 | None = None
    dedicated_cpu_placement: bool | None = None
    features: tuple[CPUFeature, ...] | None = None
    isolate_emulator_thread: bool | None = None
    max_sockets: Int64 | None = None
    model: str | None = None
    numa: NUMA | None = None
    realtime: Realtime | None = None
    sockets: Int64 | None = None
    threads: Int64 | None = None


class FeatureAPIC(Model, frozen=True, kw_only=True):
    """Undocumented."""

    enabled: bool | None = None
    end_of_interrupt: bool | None = None


class FeatureSpinlocks(Model, frozen=True, kw_only=True):
    """Undocumented."""

    enabled: bool | None = None
    spinlocks: Int64 | None = None


class SyNICTimer(Model, frozen=True, kw_only=True):
    """Undocumented."""

    direct: FeatureState | None = None
    enabled: bool | None = None


class TLBFlush(Model, frozen=True, kw_only=True):
    """Undocumented."""

    direct: FeatureState | None = None
    enabled: bool | None = None
    extended: FeatureState | None = None


class FeatureVendorID(Model, frozen=True, kw_only=True):
    """Undocumented."""

    enabled: bool | None = None
    vendorid: str | None = None


class FeatureHyperv(Model, frozen=True, kw_only=True):
    """Undocumented."""

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
    """Undocumented."""

    enabled: bool | None = None


class FeatureKVM(Model, frozen=True, kw_only=True):
    """Undocumented."""

    hidden: bool | None = None


class Features(Model, frozen=True, kw_only=True):
    """Undocumented."""

    acpi: FeatureState | None = None
    apic: FeatureAPIC | None = None
    hyperv: FeatureHyperv | None = None
    hyperv_passthrough: HyperVPassthrough | None = None
    kvm: FeatureKVM | None = None
    pvspinlock: FeatureState | None = None
    smm: FeatureState | None = None


class ACPI(Model, frozen=True, kw_only=True):
    """Undocumented."""

    msdm_name_ref: str | None = None
    slic_name_ref: str | None = None


class BIOS(Model, frozen=True, kw_only=True):
    """Undocumented."""

    use_serial: bool | None = None


class EFI(Model, frozen=True, kw_only=True):
    """Undocumented."""

    persistent: bool | None = None
    secure_boot: bool | None = None


class Bootloader(Model, frozen=True, kw_only=True):
    """Undocumented."""

    bios: BIOS | None = None
    efi: EFI | None = None


class KernelBootContainer(Model, frozen=True, kw_only=True):
    """Undocumented."""

    image: str
    image_pull_policy: str | None = None
    image_pull_secret: str | None = None
    initrd_path: str | None = None
    kernel_path: str | None = None


class KernelBoot(Model, frozen=True, kw_only=True):
    """Undocumented."""

    container: KernelBootContainer | None = None
    kernel_args: str | None = None


class Firmware(Model, frozen=True, kw_only=True):
    """Undocumented."""

    acpi: ACPI | None = None
    bootloader: Bootloader | None = None
    kernel_boot: KernelBoot | None = None
    serial: str | None = None
    uuid: str | None = None


class DiskIOThreads(Model, frozen=True, kw_only=True):
    """Undocumented."""

    supplemental_pool_thread_count: Int64 | None = None


class SEVAttestation(Model, frozen=True, kw_only=True):
    """Undocumented."""


class SEVPolicy(Model, frozen=True, kw_only=True):
    """Undocumented."""

    encrypted_state: bool | None = None


class SEV(Model, frozen=True, kw_only=True):
    """Undocumented."""

    attestation: SEVAttestation | None = None
    dh_cert: str | None = None
    policy: SEVPolicy | None = None
    session: str | None = None


class SEVSNP(Model, frozen=True, kw_only=True):
    """Undocumented."""


class TDX(Model, frozen=True, kw_only=True):
    """Undocumented."""


class LaunchSecurity(Model, frozen=True, kw_only=True):
    """Undocumented."""

    sev: SEV | None = None
    snp: SEVSNP | None = None
    tdx: TDX | None = None


class Machine(Model, frozen=True, kw_only=True):
    """Undocumented."""

    type: str | None = None


class Hugepages(Model, frozen=True, kw_only=True):
    """Undocumented."""

    page_size: str | None = None


class ReservedOverhead(Model, frozen=True, kw_only=True):
    """Undocumented."""

    added_overhead: QuantityValue | None = None
    mem_lock: Annotated[str | None, Schema(facts={"enum": ["NotRequired", "Required"]})] = None


class Memory(Model, frozen=True, kw_only=True):
    """Undocumented."""

    guest: QuantityValue | None = None
    hugepages: Hugepages | None = None
    max_guest: QuantityValue | None = None
    reserved_overhead: ReservedOverhead | None = None


class ResourceRequirements(Model, frozen=True, kw_only=True):
    """Undocumented."""

    limits: dict[str, QuantityValue] | None = None
    overcommit_guest_overhead: bool | None = None
    requests: dict[str, QuantityValue] | None = None


class DomainSpec(Model, frozen=True, kw_only=True):
    """Undocumented."""

    chassis: Chassis | None = None
    clock: Annotated[Clock | None, Schema(opaque=True)] = None
    cpu: CPU | None = None
    devices: Devices
    features: Features | None = None
    firmware: Firmware | None = None
    io_threads: DiskIOThreads | None = None
    io_threads_policy: str | None = None
    launch_security: LaunchSecurity | None = None
    machine: Machine | None = None
    memory: Memory | None = None
    reboot_policy: Annotated[str | None, Schema(facts={"enum": ["Reboot", "Terminate"]})] = None
    resources: ResourceRequirements | None = None

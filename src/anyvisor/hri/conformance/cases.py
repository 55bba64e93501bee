"""One machine for each capability that a machine can ask for: what a driver that claims it must plan, and any other
must refuse. Values of sets are tried one by one."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from anyvisor.hri.v1.machine_spec_pb2 import (
    Balloon,
    BlockSize,
    Boot,
    Clock,
    Console,
    Cpu,
    CpuFeature,
    Device,
    Disk,
    Display,
    Features,
    Filesystem,
    Firmware,
    GuestAgentPort,
    Input,
    Kernel,
    Lifecycle,
    Machine,
    Memory,
    Nic,
    Panic,
    Rng,
    Sound,
    SystemIdentity,
    TapBackend,
    Tpm,
    UsbRedirection,
    UserBackend,
    VhostUserBackend,
    VolumeHandle,
    Vsock,
    Watchdog,
)

MIB: Final = 1 << 20
PCI_PLACE: Final = "0000:07:00.0"
PCI_PLACE_ON_ONE_BUS: Final = "0000:00:1a.0"
"""For a VMM that puts all devices on its root bus."""
MAC: Final = "02:00:00:c0:ff:01"
UUID: Final = "5d307ca9-b3ef-428c-8861-06e72d69f223"
_Layer = VolumeHandle.Layer

BUSES: Final[Mapping[str, Disk.Bus]] = {
    "virtio": Disk.BUS_VIRTIO,
    "sata": Disk.BUS_SATA,
    "scsi": Disk.BUS_SCSI,
    "usb": Disk.BUS_USB,
}
MODELS: Final[Mapping[str, Nic.Model]] = {
    "virtio": Nic.MODEL_VIRTIO,
    "e1000": Nic.MODEL_E1000,
    "e1000e": Nic.MODEL_E1000E,
    "igb": Nic.MODEL_IGB,
    "ne2k_pci": Nic.MODEL_NE2K_PCI,
    "pcnet": Nic.MODEL_PCNET,
    "rtl8139": Nic.MODEL_RTL8139,
}
CACHES: Final[Mapping[str, Disk.Cache]] = {
    "none": Disk.CACHE_NONE,
    "writethrough": Disk.CACHE_WRITETHROUGH,
    "writeback": Disk.CACHE_WRITEBACK,
}
ERRORS: Final[Mapping[str, Disk.OnError]] = {
    "stop": Disk.ON_ERROR_STOP,
    "report": Disk.ON_ERROR_REPORT,
    "ignore": Disk.ON_ERROR_IGNORE,
    "enospace": Disk.ON_ERROR_STOP_WHEN_FULL,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A capability, of a set one value, and what of a machine asks for it."""

    capability: str
    ask: Callable[[Machine, "Basis"], None]
    value: str = ""

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.capability}={self.value}" if self.value else self.capability


@dataclass(frozen=True, slots=True)
class Basis:
    """What the driver offers where a case needs anything that works: its first bus, image format and NIC back end."""

    bus: Disk.Bus = Disk.BUS_VIRTIO
    image: VolumeHandle.Layer.Format = _Layer.FORMAT_RAW
    model: Nic.Model = Nic.MODEL_VIRTIO
    user_network: bool = False
    on_root_bus: bool = False

    def disk(self, disk_id: str = "conform-disk", /, **more: object) -> Disk:
        """A disk that the driver can plan."""
        layer = _Layer(handle=f"{disk_id}/0", format=self.image, direct=True)
        disk = Disk(
            id=disk_id,
            kind=Disk.KIND_DISK,
            bus=self.bus,
            volume=VolumeHandle(layers=[layer], size_bytes=MIB),
        )
        for name, value in more.items():
            if isinstance(value, BlockSize):
                disk.block_size.CopyFrom(value)
            else:
                setattr(disk, name, value)
        return disk

    def nic(self, nic_id: str = "conform-nic", /, **more: object) -> Nic:
        """A NIC that the driver can plan."""
        nic = Nic(id=nic_id, model=self.model, mac=MAC)
        if self.user_network:
            nic.user.network = "10.0.2.0/24"
        else:
            nic.tap.handles.append(f"{nic_id}/tap0")
        for name, value in more.items():
            setattr(nic, name, value)
        return nic

    @property
    def place(self) -> str:
        """A PCI address that a device may ask for."""
        return PCI_PLACE_ON_ONE_BUS if self.on_root_bus else PCI_PLACE


def _merge(part: Machine) -> Callable[[Machine, Basis], None]:
    return lambda machine, _: machine.MergeFrom(part)


def _boot(part: Boot) -> Callable[[Machine, Basis], None]:
    def ask(machine: Machine, basis: Basis) -> None:
        machine.boot.CopyFrom(part)
        machine.disks.append(basis.disk())

    return ask


def _order(machine: Machine, basis: Basis) -> None:
    disk = basis.disk()
    machine.boot.CopyFrom(Boot(firmware=Firmware(kind=Firmware.KIND_BIOS), order=[disk.id]))
    machine.disks.append(disk)


def _disk(**more: object) -> Callable[[Machine, Basis], None]:
    return lambda machine, basis: machine.disks.append(basis.disk("conform-disk", **more))


def _nic(**more: object) -> Callable[[Machine, Basis], None]:
    return lambda machine, basis: machine.nics.append(basis.nic("conform-nic", **more))


def _backend(nic: Nic) -> Callable[[Machine, Basis], None]:
    def ask(machine: Machine, basis: Basis) -> None:
        added = basis.nic()
        for other in ("tap", "user", "vhost_user"):
            added.ClearField(other)
        added.MergeFrom(nic)
        machine.nics.append(added)

    return ask


def _device(device: Device) -> Callable[[Machine, Basis], None]:
    device.id = "conform-device"
    return _merge(Machine(devices=[device]))


def _cdrom(bus: Disk.Bus) -> Callable[[Machine, Basis], None]:
    return lambda machine, basis: machine.disks.append(basis.disk(kind=Disk.KIND_CDROM, bus=bus, read_only=True))


def _format(name: str) -> Callable[[Machine, Basis], None]:
    def ask(machine: Machine, basis: Basis) -> None:
        disk = basis.disk()
        layers = [_Layer(handle="conform-disk/0", format=_Layer.FORMAT_RAW if name == "raw" else _Layer.FORMAT_QCOW2)]
        if name == "qcow2.backing":
            layers.append(_Layer(handle="conform-disk/1", format=_Layer.FORMAT_RAW, read_only=True))
        del disk.volume.layers[:]
        disk.volume.layers.extend(layers)
        machine.disks.append(disk)

    return ask


def _places(of: str) -> Callable[[Machine, Basis], None]:
    def ask(machine: Machine, basis: Basis) -> None:
        if of == "disk":
            machine.disks.append(basis.disk(pci_address=basis.place))
        else:
            machine.nics.append(basis.nic(pci_address=basis.place))

    return ask


def _clock(clock: Clock) -> Callable[[Machine, Basis], None]:
    return _merge(Machine(clock=clock))


def _timer(name: str) -> Callable[[Machine, Basis], None]:
    return _clock(Clock(timers=[Clock.Timer(name=name, present=True)]))


def _identity(**more: str) -> Callable[[Machine, Basis], None]:
    return _merge(Machine(identity=SystemIdentity(**more)))  # type: ignore[arg-type]


def _cpu(**more: object) -> Callable[[Machine, Basis], None]:
    return _merge(Machine(cpu=Cpu(**more)))  # type: ignore[arg-type]


def _flags() -> Iterator[Case]:
    yield Case("boot.kernel", _merge(Machine(boot=Boot(kernel=Kernel(kernel_handle="kernel")))))
    yield Case("boot.bios", _boot(Boot(firmware=Firmware(kind=Firmware.KIND_BIOS))))
    yield Case("boot.bios.serial", _boot(Boot(firmware=Firmware(kind=Firmware.KIND_BIOS, serial_output=True))))
    yield Case("boot.uefi", _boot(Boot(firmware=Firmware(kind=Firmware.KIND_UEFI))))
    yield Case("boot.uefi.secure", _boot(Boot(firmware=Firmware(kind=Firmware.KIND_UEFI, secure_boot=True))))
    yield Case("boot.order", _order)
    yield Case("identity.uuid", _identity(uuid=UUID))
    yield Case("identity.serial", _identity(serial="conform-1"))
    for name in ("asset", "manufacturer", "serial", "sku", "version"):
        yield Case(f"identity.chassis.{name}", _identity(**{f"chassis_{name}": "conform-1"}))
    yield Case("cpu.topology", _cpu(sockets=2, cores=2))
    yield Case("cpu.model.host", _cpu(model="host-model"))
    yield Case("cpu.model.passthrough", _cpu(model="host-passthrough"))
    yield Case("cpu.feature", _cpu(features=[CpuFeature(name="aes", policy=CpuFeature.POLICY_OPTIONAL)]))
    yield Case("cpu.pin", _cpu(dedicated=[0]))
    yield Case("cpu.hotplug", _cpu(max_sockets=2))
    yield Case("memory.hotplug", _merge(Machine(memory=Memory(max_bytes=512 * MIB))))
    yield Case("memory.shared", _merge(Machine(memory=Memory(shared=True))))
    yield Case("memory.lock", _merge(Machine(memory=Memory(locked=True))))
    yield Case("disk.lun", _disk(kind=Disk.KIND_LUN, bus=Disk.BUS_SCSI))
    yield Case("disk.readonly", _disk(read_only=True))
    yield Case("disk.serial", _disk(serial="conform-1"))
    yield Case("disk.pci-address", _places("disk"))
    yield Case("disk.shareable", _disk(shareable=True))
    yield Case("disk.block-size", _disk(block_size=BlockSize(logical=4096, physical=4096)))
    yield Case("disk.block-size.match", _disk(block_size=BlockSize(match_volume=True)))
    yield Case("disk.multiqueue", _queues)
    yield Case("disk.iothread.dedicated", _disk(dedicated_io_thread=True))
    yield Case("nic.tap", _backend(Nic(tap=TapBackend(handles=["conform-nic/tap0"]))))
    yield Case("nic.user", _backend(Nic(user=UserBackend(network="10.0.2.0/24"))))
    yield Case("nic.vhost-user", _backend(Nic(vhost_user=VhostUserBackend(handle="conform-nic/vhost"))))
    yield Case("nic.mac", _nic(mac=MAC))
    yield Case("nic.mtu", _nic(mtu=1400))
    yield Case("nic.link", _nic(link_down=True))
    yield Case("nic.acpi-index", _nic(acpi_index=101))
    yield Case("nic.pci-address", _places("nic"))
    yield Case("console.log", _log)
    yield Case("console.virtio", _merge(Machine(consoles=[Console(id="virtio0", kind=Console.KIND_VIRTIO)])))
    yield Case("display.vnc", _merge(Machine(displays=[Display(id="display0")])))


def _devices() -> Iterator[Case]:
    yield Case("device.rng", _device(Device(rng=Rng())))
    yield Case("device.vsock", _device(Device(vsock=Vsock(cid=77, handle="vsock"))))
    yield Case("device.watchdog", _device(Device(watchdog=Watchdog(model="i6300esb", action="reset"))))
    yield Case("device.tpm", _device(Device(tpm=Tpm(handle="tpm", model="crb"))))
    yield Case("device.sound", _device(Device(sound=Sound(model="ac97"))), "ac97")
    yield Case("device.sound", _device(Device(sound=Sound(model="ich9"))), "ich9")
    yield Case("device.panic.model", _device(Device(panic=Panic(model="pvpanic"))), "pvpanic")
    yield Case("device.usb-redirection", _device(Device(usb_redirection=UsbRedirection(channels=1))))
    yield Case("memory.balloon", _device(Device(balloon=Balloon())))
    yield Case("guest.agent", _device(Device(guest_agent_port=GuestAgentPort())))
    yield Case("fs.virtiofs", _filesystem)
    yield Case("clock.utc-offset", _clock(Clock(utc_offset_seconds=3600)))
    yield Case("clock.timezone", _clock(Clock(timezone="Europe/Berlin")))
    yield from (Case(f"clock.timer.{name}", _timer(name)) for name in ("hpet", "hyperv", "kvm", "pit", "rtc"))
    yield Case("feature.acpi.off", _merge(Machine(features=Features(acpi=False))))
    yield Case("feature.apic.off", _merge(Machine(features=Features(apic=False))))
    yield Case("feature.smm", _merge(Machine(features=Features(smm=True))))
    yield Case("feature.hidden-hypervisor", _merge(Machine(features=Features(hidden_hypervisor=True))))
    yield Case("feature.hyperv", _merge(Machine(features=Features(hyperv={"relaxed": "on"}))))
    yield from (Case(f"feature.hyperv.{name}", _enlightened(name, value)) for name, value in _HYPERV.items())
    yield Case("feature.pvspinlock", _merge(Machine(features=Features(pv_spinlocks=True))))
    yield Case("lifecycle.start-paused", _merge(Machine(lifecycle=Lifecycle(start_paused=True))))


_HYPERV: Final = {
    **dict.fromkeys(("evmcs", "frequencies", "ipi", "reenlightenment", "relaxed", "reset", "runtime"), "on"),
    **dict.fromkeys(("synic", "synictimer", "tlbflush", "vapic", "vpindex"), "on"),
    "spinlocks": "8191",
    "vendorid": "conform",
}
"""The enlightenments that have a capability, each with a value."""


def _enlightened(name: str, value: str) -> Callable[[Machine, Basis], None]:
    return _merge(Machine(features=Features(hyperv={name: value})))


def _queues(machine: Machine, basis: Basis) -> None:
    machine.cpu.sockets = 2
    machine.disks.append(basis.disk(queues=2))


def _log(machine: Machine, _: Basis) -> None:
    if not machine.consoles:
        machine.consoles.add(id="serial0", kind=Console.KIND_SERIAL)
    machine.consoles[0].log_handle = "serial0/log"


def _filesystem(machine: Machine, _: Basis) -> None:
    machine.memory.shared = True
    shared = Filesystem(id="share", tag="share", directory_handle="share/directory", namespace_handle="share/user")
    machine.filesystems.append(shared)


def _sets() -> Iterator[Case]:
    yield from (Case("disk.bus", _disk(bus=bus), name) for name, bus in BUSES.items())
    yield from (Case("disk.cdrom.bus", _cdrom(bus), name) for name, bus in BUSES.items())
    yield from (Case("disk.cache", _disk(cache=cache), name) for name, cache in CACHES.items())
    yield Case("disk.io", _disk(io=Disk.IO_THREADS), "threads")
    yield Case("disk.io", _disk(io=Disk.IO_NATIVE), "native")
    yield from (Case("disk.error-policy", _disk(on_error=what), name) for name, what in ERRORS.items())
    yield from (Case("disk.format", _format(name), name) for name in ("raw", "qcow2", "qcow2.backing"))
    yield from (Case("nic.model", _nic(model=model), name) for name, model in MODELS.items())
    models = ("vga", "virtio", "bochs", "cirrus", "ramfb")
    yield from (Case("display.model", _display(name), name) for name in models)
    yield from (Case("input.bus", _device(Device(input=Input(type="tablet", bus=name))), name) for name in _INPUTS)
    yield Case("lifecycle.reboot", _reboot(Lifecycle.ON_REBOOT_RESET), "Reboot")
    yield Case("lifecycle.reboot", _reboot(Lifecycle.ON_REBOOT_STOP), "Terminate")
    yield from (Case("memory.hugepages", _pages(size), name) for name, size in _PAGES.items())


_INPUTS: Final = ("usb", "virtio")
_PAGES: Final = {"2Mi": 2 * MIB, "1Gi": 1024 * MIB}


def _display(model: str) -> Callable[[Machine, Basis], None]:
    return _merge(Machine(displays=[Display(id="display0", model=model)]))


def _reboot(what: Lifecycle.OnReboot) -> Callable[[Machine, Basis], None]:
    return _merge(Machine(lifecycle=Lifecycle(on_reboot=what)))


def _pages(size: int) -> Callable[[Machine, Basis], None]:
    return _merge(Machine(memory=Memory(size_bytes=max(size, 128 * MIB), page_bytes=size)))


CASES: Final[tuple[Case, ...]] = (*_flags(), *_devices(), *_sets())

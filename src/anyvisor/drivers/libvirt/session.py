"""One machine's domain: commands down, events up into the machine's state."""

import asyncio
import contextlib
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import libvirt

from anyvisor.drivers.libvirt import kernels, relay, states, stats
from anyvisor.drivers.libvirt.connection import Connection, DomainEvent
from anyvisor.drivers.libvirt.relay import Relay
from anyvisor.drivers.libvirt.translate import Translation, domain_name
from anyvisor.drivers.libvirt.translate.machine import NAMESPACE
from anyvisor.hri.errors import HriError, MachineNotFound
from anyvisor.hri.kit import Descriptors, Intent, MachineContext
from anyvisor.hri.kit.retry import IoRetry
from anyvisor.hri.v1.stats_pb2 import MachineStats
from anyvisor.hri.v1.types_pb2 import PAUSE_REASON_USER, PHASE_PAUSED, PHASE_STOPPING, Endpoint

T = TypeVar("T")

_IO_ERROR_PAUSE: Final = 1
"""virDomainEventIOErrorAction: the guest was stopped."""


class Session:
    """The driver's object for one machine, in `machine.session`."""

    def __init__(self, machine: MachineContext, connection: Connection, directory: Path) -> None:
        self._machine = machine
        self._connection = connection
        self._directory = directory
        self._name = domain_name(machine.id)
        self._intent = Intent()
        self._relays: list[Relay] = []
        self._creating: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._retry = IoRetry(machine, lambda: self._in_background(self.resume()))

    # Beginning

    async def start(self, translation: Translation, descriptors: Descriptors, *, paused: bool) -> None:
        """Have libvirt define the domain, with the agent's descriptors as its disks, and run it."""
        self._connection.follow(self._name, self)
        await self.listen(translation.endpoints, descriptors)
        files = {name: descriptors.take(handle) for name, handle in translation.kernel_files.items()}
        groups = {group: descriptors.take(handle) for group, handle in translation.groups.items()}
        # A thread cannot be called back: who ends the machine meanwhile waits for it.
        self._creating = asyncio.create_task(self._create(translation.xml, files, groups, paused=paused))
        await asyncio.shield(self._creating)
        with self._machine.change() as state:
            state.graceful_stop_possible = True
            if paused:
                state.phase = PHASE_PAUSED
                state.pause_reason = PAUSE_REASON_USER

    async def _create(self, xml: str, files: Mapping[str, int], groups: Mapping[str, int], *, paused: bool) -> None:
        try:
            await asyncio.to_thread(kernels.place, self._directory, self._machine.id, files)
            await self._connection.call(lambda opened: _create(opened, xml, groups, paused=paused))
        finally:
            for descriptor in (*files.values(), *groups.values()):
                os.close(descriptor)

    async def adopt(self, endpoints: Iterable[Endpoint], descriptors: Descriptors) -> None:
        """Take over a domain that runs, or learn how it ended."""
        self._connection.follow(self._name, self)
        await self.listen(endpoints, descriptors)
        await self.refresh()
        with self._machine.change() as state:
            state.graceful_stop_possible = True

    async def listen(self, endpoints: Iterable[Endpoint], descriptors: Descriptors) -> None:
        """Serve the machine's endpoints on the listening sockets that came for them."""
        consoles = 0
        for endpoint in endpoints:
            if endpoint.purpose == Endpoint.PURPOSE_CONSOLE:
                served = relay.console(self._connection, self._name, f"serial{consoles}")
                consoles += 1
            else:
                served = relay.display(self._connection, self._name)
            await served.listen(descriptors.take_socket(endpoint.id))
            self._relays.append(served)

    # Commands

    async def press_button(self, *, reboot: bool) -> None:
        """Press the power button; for a reboot libvirt starts the guest over once it is down."""
        self._intent.stop = not reboot
        button = libvirt.VIR_DOMAIN_REBOOT_ACPI_POWER_BTN if reboot else libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN
        paused = self._machine.phase == PHASE_PAUSED

        def press(domain: libvirt.virDomain) -> None:
            if paused:
                domain.resume()
            if reboot:
                domain.reboot(button)
            else:
                domain.shutdownFlags(button)

        await self._on_domain(press)
        if not reboot and not self._machine.ended:
            with self._machine.change() as state:
                state.phase = PHASE_STOPPING

    async def end(self) -> None:
        """End the domain; QEMU writes its images out first."""
        self._intent.force = True
        if self._creating is not None and not self._creating.done():
            await asyncio.wait([self._creating])
        with contextlib.suppress(MachineNotFound):
            await self._on_domain(_destroy)
        self._machine.show(states.of_domain(states.State.SHUTOFF, 0, self._intent))

    async def forget(self) -> None:
        """Leave nothing of an ended machine in libvirt."""
        with contextlib.suppress(MachineNotFound):
            await self._on_domain(lambda domain: domain.undefine())
        await asyncio.to_thread(kernels.remove, self._directory, self._machine.id)

    async def reset(self) -> None:
        """The reset button."""
        await self._on_domain(lambda domain: domain.reset())

    async def pause(self) -> None:
        """Halt the vCPUs."""
        self._retry.cancel()
        await self._on_domain(lambda domain: domain.suspend())

    async def resume(self) -> None:
        """Run the vCPUs again."""
        await self._on_domain(lambda domain: domain.resume())

    async def counters(self) -> MachineStats:
        """What libvirt counts of the domain."""
        kinds = libvirt.VIR_DOMAIN_STATS_VCPU | libvirt.VIR_DOMAIN_STATS_BALLOON

        def read(opened: libvirt.virConnect) -> dict[str, Any]:
            found = opened.domainListGetStats([opened.lookupByName(self._name)], kinds)
            return dict(found[0][1]) if found else {}

        return stats.machine(await self._connection.call(read))

    async def refresh(self) -> None:
        """Read the domain's state, in case that an event was missed, and its memory."""
        try:
            state, reason, memory = await self._on_domain(_look)
        except MachineNotFound:
            self._machine.show(states.gone())
            return
        self._machine.show(states.of_domain(state, reason, self._intent))
        with self._machine.change() as seen:
            seen.memory_bytes = memory
        self._retry.look()

    async def read_end(self) -> None:
        """The domain stays defined until it is forgotten, so its end can be asked."""
        if not self._machine.view.final:
            with contextlib.suppress(HriError):
                await self.refresh()

    async def _on_domain(self, function: Callable[[libvirt.virDomain], T]) -> T:
        """Run `function` with the machine's domain; MachineNotFound when there is none, or it is somebody else's."""
        machine_id = self._machine.id
        return await self._connection.on_domain(self._name, lambda domain: function(_own(domain, machine_id)))

    def close(self) -> None:
        """Leave the domain alone."""
        self._retry.cancel()
        self._connection.leave(self._name, self)
        for each in self._relays:
            each.close()
        for task in self._working:
            task.cancel()

    # Observations

    def on_event(self, event: DomainEvent) -> None:
        """The domain did something."""
        before = self._machine.view
        if event.kind == "io-error":
            if event.event == _IO_ERROR_PAUSE and not before.final:
                self._machine.show(states.io_error(event.device, event.reason))
        else:
            after = states.after_lifecycle(before, event.event, event.detail, self._intent)
            if after != before and (after.pause_reason != before.pause_reason or after.phase != before.phase):
                self._machine.show(after)
        self._retry.look()

    def on_reconnect(self) -> None:
        """The daemon is back; events were missed."""
        self._in_background(self.refresh())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            with contextlib.suppress(HriError):
                await work

        task = asyncio.get_running_loop().create_task(run())
        self._working.add(task)
        task.add_done_callback(self._working.discard)


def _create(connection: libvirt.virConnect, xml: str, groups: Mapping[str, int], *, paused: bool) -> None:
    """Runs in a thread."""
    domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    try:
        for group, descriptor in groups.items():
            domain.FDAssociate(group, [descriptor], 0)
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED if paused else 0)
    except libvirt.libvirtError:
        with contextlib.suppress(libvirt.libvirtError):
            domain.undefine()
        raise


def _destroy(domain: libvirt.virDomain) -> None:
    """Runs in a thread."""
    try:
        domain.destroy()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_OPERATION_INVALID:  # it does not run
            raise


def _look(domain: libvirt.virDomain) -> tuple[int, int, int]:
    """State, its reason, and bytes of memory. Runs in a thread."""
    state, reason = domain.state()
    return int(state), int(reason), int(domain.info()[2]) * 1024


def _own(domain: libvirt.virDomain, machine_id: str) -> libvirt.virDomain:
    """The domain, if it carries our mark. Runs in a thread."""
    try:
        mark = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE)
    except libvirt.libvirtError:
        mark = ""
    if not mark or ET.fromstring(mark).get("id") != machine_id:  # noqa: S314 - what libvirt has read
        raise MachineNotFound(f"domain {domain.name()} is not machine {machine_id!r}; it is left alone")
    return domain

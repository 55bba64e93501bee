"""Facts of the daemon on this node: versions, machine types, CPU models, and whether KVM really runs a guest there."""

import asyncio
import contextlib
import os
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

import libvirt
import msgspec

from anyvisor.drivers.libvirt import kernels
from anyvisor.drivers.libvirt.connection import Connection
from anyvisor.drivers.libvirt.relay import ConsoleStream
from anyvisor.hri.errors import HriError
from anyvisor.hri.kit import kvm_guest
from anyvisor.hri.kit.facts import VmmFacts, kept
from anyvisor.hri.kit.facts import key as facts_key

FORM: Final = 1
"""Raised whenever the facts or the ways to find them change."""
OLDEST: Final = 9_000_000
"""The first libvirt that takes disks as descriptors, in its own way of counting."""
GUEST_SECONDS: Final = 10.0
_EMULATOR: Final = "/usr/bin/qemu-system-x86_64"


class Facts(VmmFacts, frozen=True):
    """What one daemon can do on one node."""

    profiles: tuple[str, ...] = ()
    default_profile: str = ""
    cpu_models: tuple[str, ...] = ()
    displays: tuple[str, ...] = ()


class _Kvm(VmmFacts, frozen=True):
    """The part of the facts that costs a guest's run."""


async def find(connection: Connection, directory: Path, cache: Path | None) -> Facts:
    """The facts. Never raises: trouble is a fact too."""
    try:
        found = await connection.call(_ask)
    except HriError as error:
        return Facts(installed=True, problem=error.message)
    if found.problem:
        return found
    wanted = facts_key(FORM, _EMULATOR, connection.uri, found.version)
    tried = await kept(_Kvm, cache, wanted, lambda: _try_kvm(connection, directory))
    return msgspec.structs.replace(
        found, kvm_opens=tried.kvm_opens, kvm_runs=tried.kvm_runs, kvm_message=tried.kvm_message
    )


def _ask(opened: libvirt.virConnect) -> Facts:
    """Runs in a thread."""
    number = opened.getLibVersion()
    version = _dotted(number)
    if opened.getType() != "QEMU":
        return Facts(installed=True, problem=f"libvirt drives {opened.getType()} here, and only QEMU is supported")
    if number < OLDEST:
        return Facts(installed=True, problem=f"libvirt {version} takes no disks as descriptors; 9.0 or newer is needed")
    capabilities = ET.fromstring(opened.getCapabilities())  # noqa: S314 - the daemon's own word
    domain = ET.fromstring(opened.getDomainCapabilities(None, "x86_64", "q35", "qemu"))  # noqa: S314
    machines = capabilities.findall("./guest/arch[@name='x86_64']/machine")
    return Facts(
        version=f"{version} (QEMU {_dotted(opened.getVersion())})",
        installed=True,
        profiles=tuple(sorted({name for each in machines if "q35" in (name := _full_name(each))})),
        default_profile=next((_full_name(each) for each in machines if each.text == "q35"), ""),
        cpu_models=tuple(
            sorted(each.text or "" for each in domain.findall("./cpu/mode[@name='custom']/model[@usable='yes']"))
        ),
        displays=tuple(each.text or "" for each in domain.findall("./devices/video/enum[@name='modelType']/value")),
    )


def _dotted(number: int) -> str:
    return f"{number // 1_000_000}.{number // 1_000 % 1_000}.{number % 1_000}"


def _full_name(machine: ET.Element) -> str:
    return machine.get("canonical", machine.text or "")


async def _try_kvm(connection: Connection, directory: Path) -> _Kvm:
    """Run the probe guest; a KVM that opens need not run one."""
    name = f"anyvisor-probe-{os.getpid()}"
    with tempfile.TemporaryFile() as file:
        file.write(kvm_guest.kernel())
        file.flush()
        await asyncio.to_thread(kernels.place, directory, name, {"kernel": file.fileno()})
    try:
        async with asyncio.timeout(GUEST_SECONDS):
            said = await _run_probe(connection, name, f"{directory}/{name}/kernel")
    except TimeoutError:
        return _Kvm(kvm_opens=True, kvm_message=f"a small guest said nothing on KVM within {GUEST_SECONDS:g} s")
    except HriError as error:
        return _Kvm(kvm_message=f"libvirt runs no guest by KVM: {error.message}")
    finally:
        with contextlib.suppress(HriError):
            await connection.on_domain(name, lambda domain: domain.destroy())
        await asyncio.to_thread(kernels.remove, directory, name)
    if said == kvm_guest.RUNS:
        return _Kvm(kvm_opens=True, kvm_runs=True)
    return _Kvm(kvm_opens=True, kvm_message=f"a small guest failed on KVM (it said {said!r}): use emulation")


async def _run_probe(connection: Connection, name: str, kernel: str) -> bytes:
    """What the probe guest says on its console."""
    said = bytearray()
    heard = asyncio.Event()

    def on_data(data: bytes) -> None:
        said.extend(data)
        heard.set()

    document = (
        f"<domain type='kvm'><name>{name}</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>"
        f"<os><type arch='x86_64' machine='q35'>hvm</type><kernel>{kernel}</kernel></os><cpu mode='host-passthrough'/>"
        "<devices><serial type='pty'/><controller type='usb' model='none'/><memballoon model='none'/></devices>"
        "</domain>"
    )
    flags = libvirt.VIR_DOMAIN_START_PAUSED | libvirt.VIR_DOMAIN_START_AUTODESTROY
    await connection.call(lambda opened: opened.createXML(document, flags))
    raw = await connection.call(lambda opened: opened.newStream(libvirt.VIR_STREAM_NONBLOCK))
    stream = ConsoleStream(raw, on_data)
    await connection.on_domain(name, lambda domain: stream.begin(domain, "serial0"))
    await connection.on_domain(name, lambda domain: domain.resume())
    hearing, ending = asyncio.create_task(heard.wait()), asyncio.create_task(stream.ended.wait())
    try:
        await asyncio.wait((hearing, ending), return_when=asyncio.FIRST_COMPLETED)
    finally:
        hearing.cancel()
        ending.cancel()
        await connection.in_thread(stream.end)
    return bytes(said[-1:])

"""Facts of QEMU on this node: version, machine types, CPU models, and the accelerators that really run a guest.

They cost two short QEMU runs, so they are kept in a file, for one boot of the node and one QEMU binary.
"""

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from anyvisor.drivers.qemu import fileserver, firmware
from anyvisor.drivers.qemu.firmware import Uefi
from anyvisor.drivers.qemu.qmp import Event, QmpClient, QmpRefused
from anyvisor.drivers.qemu.translate.displays import DEVICES
from anyvisor.drivers.qemu.translate.host import FileServer
from anyvisor.hri.errors import HriError
from anyvisor.hri.kit import kvm, kvm_guest
from anyvisor.hri.kit.facts import VmmFacts, kept
from anyvisor.hri.kit.facts import key as facts_key
from anyvisor.hri.v1.types_pb2 import ACCELERATOR_EMULATION, ACCELERATOR_KVM, Accelerator

PROBE_SECONDS: Final = 20.0
GUEST_SECONDS: Final = 10.0
"""The probe guest needs a tenth of a second where it runs at all."""
TPM: Final = "/usr/bin/swtpm"
HUGE_PAGES: Final = Path("/sys/kernel/mm/hugepages")
FORM: Final = 6
"""Raised whenever the facts or the ways to find them change."""


class Facts(VmmFacts, frozen=True):
    """What one binary can do on one node."""

    emulator: str
    profiles: tuple[str, ...] = ()
    default_profile: str = ""
    cpu_models: tuple[str, ...] = ()
    displays: tuple[str, ...] = ()
    """QEMU's devices for graphics cards."""
    uefi: Uefi | None = None
    uefi_secure: Uefi | None = None
    tpm: str = ""
    """The TPM emulator; empty = it is not installed."""
    file_server: FileServer | None = None
    file_server_problem: str = ""
    """Why no directory can be shared."""
    huge_page_bytes: tuple[int, ...] = ()
    """Sizes of huge pages of which some are reserved."""
    vsock: bool = False
    emulated_features: tuple[str, ...] = ()
    """CPU features of software emulation."""
    kvm_features: tuple[str, ...] = ()

    @property
    def accelerators(self) -> tuple[Accelerator, ...]:
        """Those that run guests, the best first."""
        return (ACCELERATOR_KVM, ACCELERATOR_EMULATION) if self.kvm_runs else (ACCELERATOR_EMULATION,)


def key(emulator: str) -> str:
    """What the facts stand and fall with."""
    found = (os.access(TPM, os.X_OK), huge_pages(), vsock(), fileserver.installed())
    return facts_key(FORM, emulator, firmware.fingerprint(), *(str(each) for each in found))


async def find(emulator: str, cache: Path | None) -> Facts:
    """The facts, from the cache or by running QEMU. Never raises: trouble is a fact too."""
    return await kept(Facts, cache, key(emulator), lambda: _find(emulator))


async def _find(emulator: str) -> Facts:
    if not os.access(emulator, os.X_OK):
        return Facts(emulator, problem=f"{emulator} is not installed; install QEMU for x86 (Debian: qemu-system-x86)")
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            facts = await _ask(emulator)
        opens, why = kvm.try_open()
        runs = False
        if opens:
            runs, why = await _try_kvm(emulator)
        known = await _kvm_features(emulator) if runs else ()
        return msgspec.structs.replace(facts, kvm_opens=opens, kvm_runs=runs, kvm_message=why, kvm_features=known)
    except (HriError, OSError, TimeoutError, KeyError, TypeError) as error:
        return Facts(emulator, installed=True, problem=f"{emulator} does not answer: {error or type(error).__name__}")


@contextlib.asynccontextmanager
async def _running(
    command: Sequence[str], events: list[Event], stopped: asyncio.Event, descriptors: Sequence[int] = ()
) -> AsyncGenerator[tuple[QmpClient, asyncio.subprocess.Process]]:
    """A short-lived QEMU with its control channel on a socketpair; it is gone when the block ends."""

    def on_event(event: Event) -> None:
        events.append(event)
        if event.name == "STOP":
            stopped.set()

    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        process = await asyncio.create_subprocess_exec(
            *command,
            *("-chardev", f"socket,id=control,fd={number}", "-mon", "chardev=control,mode=control"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=(number, *descriptors),
            env={},
        )
        theirs.close()
        client = await QmpClient.open(ours, on_event, stopped.set)
        try:
            yield client, process
        finally:
            client.close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _ask(emulator: str) -> Facts:
    command = [emulator, "-machine", "none", "-nodefaults", "-no-user-config", "-display", "none", "-S"]
    async with _running(command, [], asyncio.Event()) as (client, _):
        version = await client.greet()
        machines: list[dict[str, Any]] = await client.execute("query-machines")
        models: list[dict[str, Any]] = await client.execute("query-cpu-definitions")
        features = await _features(client, "max")
        displays = [name for name in DEVICES if await _has_device(client, name)]
    plain, secure = firmware.find()
    tpm = TPM if os.access(TPM, os.X_OK) else ""
    server, problem = await fileserver.find()
    return Facts(
        emulator,
        version=version,
        profiles=tuple(sorted(each["name"] for each in machines if "q35" in each["name"])),
        default_profile=next((each["name"] for each in machines if each.get("alias") == "q35"), ""),
        cpu_models=tuple(sorted(each["name"] for each in models)),
        displays=tuple(displays),
        uefi=plain,
        uefi_secure=secure,
        tpm=tpm,
        file_server=server,
        file_server_problem=problem,
        huge_page_bytes=huge_pages(),
        vsock=vsock(),
        emulated_features=features,
        installed=True,
    )


async def _features(client: QmpClient, model: str) -> tuple[str, ...]:
    """The features that are on in a model of everything that the accelerator can give."""
    expanded: dict[str, Any] = await client.execute(
        "query-cpu-model-expansion", {"type": "full", "model": {"name": model}}
    )
    properties: dict[str, object] = expanded["model"]["props"]
    return tuple(sorted(name for name, value in properties.items() if value is True))


async def _kvm_features(emulator: str) -> tuple[str, ...]:
    command = [
        emulator,
        "-machine",
        "none",
        "-accel",
        "kvm",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-S",
    ]
    async with asyncio.timeout(PROBE_SECONDS), _running(command, [], asyncio.Event()) as (client, _):
        await client.greet()
        return await _features(client, "host")


def huge_pages(root: Path = HUGE_PAGES) -> tuple[int, ...]:
    """Sizes in bytes of the huge pages of which this node has some."""
    found: list[int] = []
    for pool in root.glob("hugepages-*kB"):
        with contextlib.suppress(OSError, ValueError):
            if int((pool / "nr_hugepages").read_text()):
                found.append(int(pool.name.removeprefix("hugepages-").removesuffix("kB")) << 10)
    return tuple(sorted(found))


def vsock() -> bool:
    """Whether this node has a socket to guests."""
    return Path("/dev/vhost-vsock").exists()


async def _has_device(client: QmpClient, name: str) -> bool:
    """Whether the binary has a device; asking for its properties loads it, where it is packed apart."""
    try:
        await client.execute("device-list-properties", {"typename": name})
    except QmpRefused:
        return False
    return True


async def _try_kvm(emulator: str) -> tuple[bool, str]:
    """Run the probe guest; a KVM that opens need not run one."""
    try:
        async with asyncio.timeout(GUEST_SECONDS):
            status = await run_probe(emulator, "kvm", "host")
    except TimeoutError:
        return False, f"{kvm.DEVICE} opens, but a small guest did not end on it within {GUEST_SECONDS:g} s"
    if status is None:
        return False, f"{kvm.DEVICE} opens, but stopped a small guest with an internal error: use emulation"
    if status != kvm_guest.EXIT_RUNS:
        return False, f"{kvm.DEVICE} opens, but a small guest failed on it (status {status})"
    return True, ""


async def run_probe(emulator: str, accelerator: str, cpu: str) -> int | None:
    """Run the probe guest; QEMU's exit status, or None when QEMU stopped the guest and stayed."""
    with tempfile.TemporaryFile() as file:
        file.write(kvm_guest.kernel())
        file.flush()
        command = [
            *(emulator, "-machine", "q35", "-accel", accelerator, "-cpu", cpu, "-bios", "qboot.rom", "-m", "16"),
            *("-nodefaults", "-no-user-config", "-display", "none"),
            *("-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-kernel", f"/proc/self/fd/{file.fileno()}"),
        ]
        stopped = asyncio.Event()
        async with _running(command, [], stopped, [file.fileno()]) as (client, process):
            with contextlib.suppress(HriError):
                await client.greet()
            await stopped.wait()
            return await process.wait() if client.closed else None

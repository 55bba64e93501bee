"""Facts of Cloud Hypervisor on this node: is it there, is it new enough, and does KVM really run a guest.

They cost one short run of the VMM, so they are kept in a file, for one boot of the node and one binary.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from anyvisor.drivers.cloud_hypervisor import versions
from anyvisor.hri.kit import kvm, kvm_guest, landlock
from anyvisor.hri.kit.facts import VmmFacts, kept
from anyvisor.hri.kit.facts import key as facts_key

BINARY_VARIABLE: Final = "ANYVISOR_CLOUD_HYPERVISOR"
FIRMWARE_VARIABLE: Final = "ANYVISOR_CLOUD_HYPERVISOR_FIRMWARE"
PROGRAM: Final = "cloud-hypervisor"
FIRMWARES: Final = (
    "/usr/share/cloud-hypervisor/CLOUDHV.fd",
    "/usr/share/cloud-hypervisor/hypervisor-fw",
    "/usr/local/share/cloud-hypervisor/CLOUDHV.fd",
    "/usr/local/share/cloud-hypervisor/hypervisor-fw",
)
ASK_SECONDS: Final = 10.0
PROBE_SECONDS: Final = 10.0
LANDLOCK: Final = 3
"""The version of the kernel's interface that the VMM insists on."""
FORM: Final = 3
"""Raised whenever the facts or the ways to find them change."""


class Facts(VmmFacts, frozen=True):
    """What one binary can do on one node."""

    binary: str = ""
    firmware: str = ""
    landlock: bool = False
    """Whether the kernel can keep the VMM to the machine's own files."""


def binary_path(configured: str, environment: Mapping[str, str]) -> str:
    """Where the VMM is: as configured, else by environment, else on PATH; empty when nowhere."""
    named = configured or environment.get(BINARY_VARIABLE, "")
    if named:
        return os.path.abspath(named)
    return shutil.which(PROGRAM, path=environment.get("PATH", os.defpath)) or ""


def firmware_path(environment: Mapping[str, str]) -> str:
    """Where the UEFI firmware is; empty when nowhere."""
    candidates = (environment.get(FIRMWARE_VARIABLE, ""), *FIRMWARES)
    return next((path for path in candidates if path and os.path.isfile(path)), "")


def key(binary: str, firmware: str) -> str:
    """What the facts stand and fall with."""
    return facts_key(FORM, binary, firmware)


async def find(binary: str, firmware: str, cache: Path | None) -> Facts:
    """The facts, from the cache or by running the VMM. Never raises: trouble is a fact too."""
    return await kept(Facts, cache, key(binary, firmware), lambda: _find(binary, firmware))


async def _find(binary: str, firmware: str) -> Facts:
    if not binary or not os.access(binary, os.X_OK):
        where = f"{binary} is not there" if binary else f"{PROGRAM} is not on PATH"
        floor = ".".join(str(part) for part in versions.FLOOR)
        return Facts(
            binary,
            problem=f"{where}; install Cloud Hypervisor v{floor} or later from its releases, or name the program in "
            f"{BINARY_VARIABLE}",
        )
    status, said = await _run([binary, "--version"], ASK_SECONDS)
    first = said.decode(errors="replace").splitlines()[:1]
    version = first[0].removeprefix("cloud-hypervisor ").strip() if first else ""
    if status != 0 or not version:
        return Facts(binary, installed=True, problem=f"{binary} --version does not answer (status {status})")
    if why := versions.too_old(version):
        return Facts(binary, version=version.removeprefix("v"), installed=True, problem=f"{binary}: {why}")
    opens, why = kvm.try_open()
    runs = False
    if opens:
        runs, why = await _try_kvm(binary)
    return Facts(
        binary,
        firmware,
        version=version.removeprefix("v"),
        installed=True,
        kvm_opens=opens,
        kvm_runs=runs,
        kvm_message=why,
        landlock=landlock.version() >= LANDLOCK,
    )


async def _try_kvm(binary: str) -> tuple[bool, str]:
    """Run the probe guest; a KVM that opens need not run one. The VMM exits with 0 in either case."""
    with tempfile.TemporaryFile() as kernel, tempfile.TemporaryFile() as output:
        kernel.write(kvm_guest.kernel())
        kernel.flush()
        command = [
            *(binary, "--kernel", f"/proc/self/fd/{kernel.fileno()}", "--memory", "size=64M", "--cpus", "boot=1"),
            *("--serial", f"file=/proc/self/fd/{output.fileno()}", "--console", "off"),
        ]
        status, _ = await _run(command, PROBE_SECONDS, (kernel.fileno(), output.fileno()))
        output.seek(0)
        said = output.read(16)
    if status == 0 and said == kvm_guest.RUNS:
        return True, ""
    if said:
        return False, f"{kvm.DEVICE} opens, but a small guest failed on it after step {said[:1].decode()}"
    return False, f"{kvm.DEVICE} opens, but does not run what a kernel does first (status {status}): a guest would die"


async def _run(command: Sequence[str], seconds: float, descriptors: Sequence[int] = ()) -> tuple[int, bytes]:
    """Exit status and output of a short program; it is killed when the time is up. Status -1: it did not start."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=descriptors,
            env={},
        )
    except OSError:
        return -1, b""
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
            assert process.returncode is not None
            return process.returncode, output[:4096]
    except TimeoutError:
        return -1, b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

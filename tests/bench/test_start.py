"""VMI create -> first serial byte, against the same guest started by a shell and by `virsh create`; where time goes."""

import asyncio
import contextlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from anyvisor.api.meta import text_at
from anyvisor.kube.client import Client
from anyvisor.kube.config import load
from anyvisor.kube.http import HttpTransport
from anyvisor.kube.resources import PODS, VMIS
from tests.bench.measure import has_content, milliseconds, report, row, wait_until
from tests.e2e.conftest import Instance, end, make_instance, tiny_vm
from tests.guests import tiny_kernel
from tests.libvirt_daemon import Daemon, missing

REPEATS = 15
STEP = re.compile(r"(\S+)=([\d.]+)")
VMM = "qemu-system-x86_64"


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    made = make_instance()
    made.up()
    yield made
    end(made)


def shell_start(kernel: Path, place: Path) -> float:
    """Milliseconds until the guest's first byte when a shell starts the VMM."""
    serial = place / "serial"
    serial.unlink(missing_ok=True)
    machine = "-machine q35 -accel tcg -m 64 -nodefaults -no-user-config -display none"
    start = time.perf_counter()
    process = subprocess.Popen(["sh", "-c", f"exec {VMM} {machine} -serial file:{serial} -kernel {kernel}"])
    try:
        wait_until(lambda: has_content(serial))
        return milliseconds(start)
    finally:
        process.kill()
        process.wait()


DOMAIN = """<domain type='qemu'><name>bench</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type><kernel>{kernel}</kernel></os><features><acpi/></features>
<devices><serial type='file'><source path='{serial}'/><target port='0'/></serial>
<controller type='usb' model='none'/><memballoon model='none'/></devices></domain>"""


@contextlib.contextmanager
def virsh_daemon() -> Generator[Daemon | None]:
    """A running daemon of the bench's own; None where there can be none."""
    if missing():
        yield None
        return
    place = Path(tempfile.mkdtemp(prefix="av-lv-"))
    place.chmod(0o711)
    daemon = Daemon(place / "d")
    configuration = place / "d" / "home" / ".config" / "libvirt" / "qemu.conf"
    configuration.write_text('stdio_handler = "file"\n')
    daemon.start()
    yield daemon
    daemon.clear()
    daemon.stop()
    shutil.rmtree(place)


def virsh_start(daemon: Daemon, kernel: Path, place: Path) -> float:
    """Milliseconds until the guest's first byte when `virsh create` starts the VMM, the daemon running already."""
    place.chmod(0o777)
    serial, own, domain = place / "virsh-serial", place / "kernel", place / "domain.xml"
    serial.unlink(missing_ok=True)
    shutil.copy(kernel, own)
    domain.write_text(DOMAIN.format(kernel=own, serial=serial))
    start = time.perf_counter()
    command = subprocess.Popen(["virsh", "--quiet", "-c", daemon.uri, "create", str(domain)], stdout=subprocess.DEVNULL)
    wait_until(lambda: has_content(serial))
    taken = milliseconds(start)
    assert command.wait() == 0
    daemon.virsh("destroy", "bench")
    return taken


def machine(name: str) -> dict[str, Any]:
    """The VMI of the same guest."""
    spec = tiny_vm(name)["spec"]["template"]["spec"]
    spec["terminationGracePeriodSeconds"] = 0
    spec["domain"]["devices"]["autoattachGraphicsDevice"] = False  # as the bare VMM has none
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


async def our_start(client: Client, instance: Instance, name: str) -> dict[str, float]:
    """Milliseconds after the POST of each step that can be seen from outside."""
    steps: dict[str, float] = {}
    known = set(serial_logs(instance))
    start = time.perf_counter()

    def step(name: str) -> None:
        steps.setdefault(name, milliseconds(start))

    watching = [
        asyncio.create_task(watch(client, VMIS, name, step)),
        asyncio.create_task(watch(client, PODS, name, step)),
    ]
    await client.create(VMIS, machine(name))
    step("POST answered")
    while not any(has_content(path) for path in set(serial_logs(instance)) - known):
        await asyncio.sleep(0.0005)
    step("first serial byte")
    while "VMI Running" not in steps:
        await asyncio.sleep(0.002)
    await client.delete(VMIS, name, "default")
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    while (await client.list(VMIS, "default"))["items"]:
        await asyncio.sleep(0.05)
    return steps


async def watch(client: Client, resource: Any, name: str, step: Any) -> None:
    """Note what happens to the objects of `name`."""
    async for event in client.watch(resource, "default"):
        obj = event.object.json()
        if name not in text_at(obj, "metadata", "name"):
            continue
        if resource is PODS:
            step("pod created")
            if text_at(obj, "spec", "nodeName"):
                step("pod bound")
            if text_at(obj, "status", "phase") == "Running":
                step("launcher running")
        elif phase := text_at(obj, "status", "phase"):
            step(f"VMI {phase}")


def serial_logs(instance: Instance) -> list[Path]:
    """The serial logs of all machines."""
    places = (instance.data_dir / "nodes", Path("/run/anyvisor") / instance.identity)
    return [path for place in places for path in place.rglob("serial0.log")]


async def test_create_to_first_byte(instance: Instance) -> None:
    if shutil.which(VMM) is None:
        pytest.skip(f"{VMM} is not installed")
    kernel = tiny_kernel()
    shell: list[float] = []
    virsh: list[float] = []
    ours: list[dict[str, float]] = []
    transport = HttpTransport(load(instance.data_dir / "kubeconfig"))
    client = Client(transport)
    with tempfile.TemporaryDirectory() as folder, virsh_daemon() as daemon:
        for number in range(REPEATS):
            if daemon is not None:
                virsh.append(await asyncio.to_thread(virsh_start, daemon, kernel, Path(folder)))
            shell.append(await asyncio.to_thread(shell_start, kernel, Path(folder)))
            ours.append(await our_start(client, instance, f"b{number}"))
    await transport.close()
    first = [steps["first serial byte"] for steps in ours]
    ours_median, shell_median = statistics.median(first), statistics.median(shell)
    lines = [row("shell: sh -c exec VMM", shell), row("ours: POST VMI -> first serial byte", first)]
    lines.append(f"difference {ours_median - shell_median:.1f} ms, ratio {ours_median / shell_median:.2f} (medians)")
    if virsh:
        ratio = statistics.median(virsh) / ours_median
        lines += [row("virsh create -> first serial byte", virsh), f"virsh create takes {ratio:.1f} times as long"]
    names = sorted({name for steps in ours for name in steps}, key=lambda name: statistics.median(steps_of(ours, name)))
    lines += [row(f"  after POST: {name}", steps_of(ours, name)) for name in names]
    lines += [row(f"  of it in the agent: {name}", values) for name, values in agent_steps(instance).items()]
    report("create -> first serial byte (tiny guest, software emulation)", lines)
    assert len(first) == len(shell) == REPEATS


def agent_steps(instance: Instance) -> dict[str, list[float]]:
    """What the node's agent tells in its log of the steps of each start."""
    found: dict[str, list[float]] = {}
    for line in (instance.data_dir / "logs" / "agent-node-1.log").read_text().splitlines():
        for name, value in STEP.findall(line.partition("started, milliseconds:")[2]):
            found.setdefault(name, []).append(float(value))
    return found


def steps_of(runs: list[dict[str, float]], name: str) -> list[float]:
    """The series of one step."""
    return [steps[name] for steps in runs if name in steps]

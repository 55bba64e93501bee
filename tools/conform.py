"""Run the conformance suite on every driver of this repository, as far as it can be tried here.

It prints a line per driver and level. A driver whose VMM is not here says so itself, and what needs a machine is
skipped with that reason. With `--write`, the result of a driver that failed nothing lies beside its manifest
afterwards: the evidence that it ships. A manifest that changes makes it worthless, so write it anew then.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.json_format import ParseDict

from anyvisor.hri import conformance, evidence, manifests
from anyvisor.hri.conformance import DriverStartError, Files, Options, Outcome, Report
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.planning.manifest import parse
from anyvisor.planning.registry import registry
from guests import build
from tests import libvirt_daemon

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "anyvisor"
EXAMPLE = ROOT / "examples" / "drivers" / "uml"


@dataclass(frozen=True, slots=True)
class Subject:
    """A driver, and how far it is tried. Its evidence lies beside the manifest."""

    name: str
    level: int
    command: str
    manifest: Path
    machine: Path | None = None
    kernel: Path | None = None
    initrd: Path | None = None
    command_line: str = ""


def subjects() -> list[Subject]:
    """The drivers of this repository; the example only where it was built."""

    def module(name: str) -> str:
        return f"{sys.executable} -m {name}"

    drivers = SRC / "drivers"
    found = [
        Subject("fake", 5, module("anyvisor.hri.fake"), SRC / "hri" / "fake" / "manifest.yaml"),
        Subject("qemu", 5, module("anyvisor.drivers.qemu"), drivers / "qemu" / "manifest.yaml", kernel=build.tiny()),
        Subject(
            "cloud_hypervisor",
            5,
            module("anyvisor.drivers.cloud_hypervisor"),
            drivers / "cloud_hypervisor" / "manifest.yaml",
            kernel=build.tiny64(),
        ),
    ]
    # A daemon starts its machines, which this program does not: the contract is what can be tried.
    found.append(Subject("libvirt", 0, module("anyvisor.drivers.libvirt"), drivers / "libvirt" / "manifest.yaml"))
    program = EXAMPLE / "uml-driver"
    if program.exists():
        found.append(
            Subject(
                "uml",
                1,
                str(program),
                EXAMPLE / "manifest.json",
                machine=EXAMPLE / "machine.json",
                initrd=build.linux().initrd,
                command_line="console=ttyS0",
            )
        )
    return found


@contextmanager
def surroundings(subject: Subject, folder: Path) -> Generator[str]:
    """What the driver needs around it, while it is tried; yields why it cannot be, else nothing."""
    if subject.name != "libvirt":
        yield ""
        return
    if why := libvirt_daemon.missing():
        yield why
        return
    daemon = libvirt_daemon.Daemon(folder / "daemon")
    daemon.start()
    os.environ["LIBVIRT_DEFAULT_URI"] = daemon.uri
    try:
        yield ""
    finally:
        daemon.clear()
        daemon.stop()


def reporting() -> Files:
    """The guest that tells what it sees."""
    guest = build.linux_reporting()
    return Files(str(guest.kernel), str(guest.initrd), guest.command_line)


async def judge(subject: Subject, folder: Path) -> Report:
    """One run."""
    machine = ParseDict(json.loads(subject.machine.read_text()), Machine()) if subject.machine else None
    data = manifests.read(subject.manifest.read_text())
    options = Options(
        hri_socket=str(folder / "hri"),
        fd_socket=str(folder / "fd"),
        level=subject.level,
        machine=machine,
        manifest_digest=manifests.digest(data),
        manifest=parse(data, registry()),
        talking=Files(
            str(subject.kernel) if subject.kernel else None,
            str(subject.initrd) if subject.initrd else None,
            subject.command_line,
        ),
        talks=True,
        reporting=reporting(),
        driver_command=f"{subject.command} --hri {{hri}} --fd {{fd}}",
    )
    return await conformance.run(options)


def say(subject: Subject, report: Report) -> None:
    """A line per level, and one for each check that failed."""
    for level in range(subject.level + 1):
        results = [result for result in report.results if result.level == level]
        count = {word: sum(result.outcome == word for result in results) for word in Outcome}
        verdict = "FAILED" if count[Outcome.FAILED] else "ok" if count[Outcome.PASSED] else "not tried"
        print(
            f"{subject.name:18} level {level}  {verdict:9} {', '.join(f'{n} {word}' for word, n in count.items() if n)}"
        )
    for result in report.failed:
        print(f"    {result.id}: {result.message}")
    reasons = {result.message for result in report.results if result.outcome == Outcome.SKIPPED}
    for reason in sorted(reasons):
        print(f"    skipped: {reason}")
    sys.stdout.flush()


def write(subject: Subject, report: Report) -> None:
    """Keep the result as the driver's evidence, unless something failed."""
    file = subject.manifest.with_name(evidence.FILE)
    if not report.passed:
        print(f"{subject.name:18} {file.name} stays as it is: a result with a failed check proves nothing")
        return
    file.write_text(conformance.as_json(report), encoding="utf-8")
    print(f"{subject.name:18} written: {file.relative_to(ROOT)}")


def options() -> argparse.Namespace:
    """Which drivers, and what becomes of the results."""
    parser = argparse.ArgumentParser(prog="make conform ARGS=", description=main.__doc__)
    parser.add_argument("drivers", nargs="*", metavar="DRIVER", help="these alone, as the lines name them")
    parser.add_argument("--write", action="store_true", help="write each result as the evidence that the driver ships")
    return parser.parse_args()


def main() -> int:
    """0 when no check failed."""
    failed, asked = False, options()
    for subject in subjects():
        if asked.drivers and subject.name not in asked.drivers:
            continue
        with (
            tempfile.TemporaryDirectory(prefix="av-", dir="/tmp") as folder,
            surroundings(subject, Path(folder)) as missing,
        ):
            if missing:
                print(f"{subject.name:18} not tried: {missing}")
                continue
            try:
                report = asyncio.run(judge(subject, Path(folder)))
            except DriverStartError as error:
                print(f"{subject.name:18} {error}")
                failed = True
                continue
        say(subject, report)
        if asked.write:
            write(subject, report)
        failed = failed or bool(report.failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

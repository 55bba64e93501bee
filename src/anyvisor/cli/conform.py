"""`anyvisor conform`: run the conformance suite against a driver's socket."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyvisor.cli.main import CommandError

if TYPE_CHECKING:
    from anyvisor.hri.conformance import Report, Result
    from anyvisor.hri.v1.machine_spec_pb2 import Machine
    from anyvisor.planning.manifest import Manifest

Json = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """Where the driver is, how far to go, how to tell."""
    parser.add_argument("--endpoint", required=True, metavar="unix:///PATH", help="the driver's HRI socket")
    parser.add_argument("--fd-socket", metavar="PATH", help="the driver's descriptor socket")
    parser.add_argument("--level", type=int, default=0, choices=range(6), help="highest level to run (default 0)")
    parser.add_argument(
        "--manifest", metavar="FILE", help="the driver's manifest: what it claims is tried, what it does not is refused"
    )
    parser.add_argument(
        "--class",
        dest="hypervisor",
        metavar="CLASS",
        help="a HypervisorClass, as a YAML file or by its name in the running instance: its parameters, accelerator "
        "and overhead are tried (without --manifest, that of the instance's driver)",
    )
    parser.add_argument("--bench", action="store_true", help="also measure: calls, plans, first byte, end, memory")
    parser.add_argument("--machine", metavar="FILE", help="a Machine message as JSON: another shape to plan")
    parser.add_argument("--kernel", metavar="FILE", help="level 1: a kernel that talks on its first serial port")
    parser.add_argument("--initrd", metavar="FILE", help="level 1: its initial RAM disk")
    parser.add_argument("--command-line", default="", metavar="TEXT", help="level 1: its command line")
    parser.add_argument("--talks", action="store_true", help="level 1: the guest goes on talking by itself")
    parser.add_argument("--reporting-kernel", metavar="FILE", help="levels 2 to 4: the kernel of the reporting guest")
    parser.add_argument("--reporting-initrd", metavar="FILE", help="levels 2 to 4: its initial RAM disk")
    parser.add_argument(
        "--reporting-command-line", default="console=ttyS0 quiet panic=-1", metavar="TEXT", help="its command line"
    )
    parser.add_argument(
        "--driver", metavar="COMMAND", default="", help="start the driver by this command, with {hri} and {fd} in it"
    )
    parser.add_argument("--check", action="append", default=[], metavar="ID", help="run this check alone; may repeat")
    parser.add_argument("--skip", action="append", default=[], metavar="ID", help="leave this check out; may repeat")
    parser.add_argument("-o", "--output", choices=["text", "json", "junit"], default="text", help="what to print")
    parser.add_argument("--json", metavar="FILE", help="also write the result as JSON, the evidence for a manifest")
    parser.add_argument("--junit", metavar="FILE", help="also write the result as JUnit XML")


def run(arguments: argparse.Namespace) -> int:
    """0 when nothing failed."""
    from anyvisor.cli import conform_class
    from anyvisor.hri import conformance, manifests

    raw, manifest = _manifest(arguments.manifest) if arguments.manifest else ({}, None)
    machine = _machine(arguments.machine) if arguments.machine else None
    offered = None
    if arguments.hypervisor:
        offered = conform_class.find(arguments.hypervisor, raw)
        raw, manifest, machine = offered.raw, offered.manifest, offered.applied(machine)
    reporting = arguments.reporting_kernel or arguments.reporting_initrd
    options = conformance.Options(
        hri_socket=_path(arguments.endpoint),
        fd_socket=arguments.fd_socket,
        level=arguments.level,
        machine=machine,
        manifest_digest=manifests.digest(raw) if raw else "",
        manifest=manifest,
        talking=conformance.Files(arguments.kernel, arguments.initrd, arguments.command_line),
        talks=arguments.talks,
        reporting=conformance.Files(
            arguments.reporting_kernel, arguments.reporting_initrd, arguments.reporting_command_line
        )
        if reporting
        else None,
        driver_command=arguments.driver,
        only=tuple(arguments.check),
        skip=tuple(arguments.skip),
        hypervisor_class=offered.name if offered else "",
        bench=arguments.bench,
    )
    heard = _print_result if arguments.output == "text" else _silent
    try:
        report = asyncio.run(conformance.run(options, heard))
    except conformance.DriverStartError as error:
        raise CommandError(str(error)) from error
    if arguments.json:
        Path(arguments.json).write_text(conformance.as_json(report), encoding="utf-8")
    if arguments.junit:
        Path(arguments.junit).write_text(conformance.as_junit(report), encoding="utf-8")
    if arguments.output == "json":
        print(conformance.as_json(report), end="")
    elif arguments.output == "junit":
        print(conformance.as_junit(report), end="")
    else:
        _print_summary(report)
    return 0 if report.passed else 1


def _path(endpoint: str) -> str:
    path = endpoint.removeprefix("unix://").removeprefix("unix:")
    if not path.startswith("/"):
        raise CommandError(f"--endpoint {endpoint!r} is no unix socket; write unix:///run/driver/hri.sock")
    return path


def _machine(name: str) -> "Machine":
    from google.protobuf.json_format import ParseDict, ParseError

    from anyvisor.hri.v1.machine_spec_pb2 import Machine

    try:
        data: Any = json.loads(_text(name))
        return ParseDict(data, Machine())
    except (ValueError, ParseError) as error:
        raise CommandError(f"--machine {name}: this is no Machine message: {error}") from error


def _manifest(name: str) -> "tuple[Json, Manifest]":
    from anyvisor.hri import manifests
    from anyvisor.planning.manifest import ManifestError, parse
    from anyvisor.planning.registry import registry

    try:
        data = manifests.read(_text(name))
        return data, parse(data, registry())
    except manifests.ManifestFileError as error:
        raise CommandError(f"--manifest {name}: {error}") from error
    except ManifestError as error:
        lines = "\n  ".join(error.problems)
        raise CommandError(f"--manifest {name} cannot be used:\n  {lines}") from error


def _text(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name} cannot be read: {error}") from error


def _silent(result: "Result") -> None:
    del result


def _print_result(result: "Result") -> None:
    word = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}[result.outcome]
    print(f"{word:8} {result.id:28} {result.title} ({result.seconds * 1000:.0f} ms)")
    if result.message:
        print(f"         {result.message}")
    sys.stdout.flush()


def _print_summary(report: "Report") -> None:
    count = {word: sum(result.outcome == word for result in report.results) for word in ("passed", "failed", "skipped")}
    who = f"{report.driver} {report.driver_version}" if report.driver else "the driver"
    for figure in report.figures:
        value = "-" if figure.value is None else f"{figure.value:g} {figure.unit}"
        print(f"{'bench':8} {figure.id:28} {figure.title}: {value}{f' ({figure.note})' if figure.note else ''}")
    verdict = "conforms to" if report.passed else "does not conform to"
    print(
        f"{who} {verdict} HRI v1.{report.hri_minor} level {report.level}: "
        f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"
    )

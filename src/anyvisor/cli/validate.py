"""`anyvisor validate -f FILE|-`: check manifests without a server."""

import argparse
import json
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from anyvisor.cli.main import EXIT_FAILURE, CommandError

_CHECKED_GROUP = "kubevirt.io/"
_MAX_SHOWN = 200


def configure(parser: argparse.ArgumentParser) -> None:
    """The manifests, and what to check them with."""
    parser.add_argument(
        "-f",
        "--file",
        action="append",
        required=True,
        metavar="FILE",
        help="YAML documents or JSON lines; - = standard input (may be given several times)",
    )
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="json = one line per object")
    parser.add_argument(
        "--context",
        metavar="FILE",
        help='JSON: {"architecture": ..., "configuration": the spec.configuration of the KubeVirt object}',
    )
    parser.add_argument(
        "--class", dest="hypervisor", metavar="DRIVER", help="also ask whether this hypervisor driver can run the VM"
    )


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What is told of one object."""

    file: str
    document: Any
    result: Any
    findings: list[Any]

    @property
    def name(self) -> str:
        value = self.document.value
        if not isinstance(value, dict):
            return "the document"
        obj = cast(dict[str, Any], value)
        metadata = obj.get("metadata")
        called = cast(dict[str, Any], metadata).get("name") if isinstance(metadata, dict) else None
        return f"{obj.get('kind') or 'object'}/{called or '(no name)'}"

    @property
    def refused(self) -> bool:
        return not self.result.allowed or any(finding.severity == "error" for finding in self.findings)


def run(arguments: argparse.Namespace) -> int:
    """Check all objects of all files, in order; 1 when one is refused."""
    checker = _Checker(arguments.context, arguments.hypervisor)
    show = _show_json if arguments.output == "json" else _show_text
    refused = False
    for file in arguments.file:
        for document in _documents(file):
            verdict = checker.check(file, document)
            show(verdict)
            refused = refused or verdict.refused
    return EXIT_FAILURE if refused else 0


def _documents(file: str) -> list[Any]:
    from anyvisor.cli.manifests import MAX_BYTES, ManifestError, read

    try:
        raw = sys.stdin.buffer.read(MAX_BYTES + 1) if file == "-" else _read_file(file, MAX_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror or error}") from error
    if len(raw) > MAX_BYTES:
        raise CommandError(f"{file}: more than {MAX_BYTES >> 20} MiB; split it")
    try:
        return read(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CommandError(f"{file}: it is not UTF-8 (byte {error.start}); convert it") from error
    except ManifestError as error:
        raise CommandError(f"{file}: {error}") from error


def _read_file(file: str, size: int) -> bytes:
    with Path(file).open("rb") as stream:
        return stream.read(size)


class _Checker:
    """The schemas and the configuration, read once."""

    def __init__(self, context: str | None, hypervisor: str | None) -> None:
        from anyvisor.admission.config import ClusterConfig
        from anyvisor.admission.offline import Offline
        from anyvisor.admission.schema import Schemas
        from anyvisor.api.crd import crds

        given = _context(context)
        self._offline = Offline(
            schemas=Schemas(crds()),
            config=ClusterConfig.of(given.get("configuration"), given.get("architecture") or "amd64"),
            new_uuid=lambda: str(uuid.uuid4()),
            now=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        self._hypervisor = hypervisor

    def check(self, file: str, document: Any) -> _Verdict:
        """The verdict on one object."""
        from dataclasses import replace

        from anyvisor.admission import unserved
        from anyvisor.admission.dispatch import ADMITTERS
        from anyvisor.admission.result import AdmissionResult, Cause, refuse

        value = document.value
        if not isinstance(value, dict):
            told = Cause("", "", document.problem or "it is no object; write apiVersion, kind, metadata and spec")
            return _Verdict(file, document, refuse({}, [told]), [])
        obj = cast(dict[str, Any], value)
        kind, version = str(obj.get("kind") or ""), str(obj.get("apiVersion") or "")
        if not kind or not version:
            told = Cause("", "", "apiVersion or kind is missing; say what the object is")
            return _Verdict(file, document, refuse(obj, [told]), [])
        if kind not in ADMITTERS or not version.startswith(_CHECKED_GROUP):
            warning = f"{version} {kind} is not checked here"
            return _Verdict(file, document, AdmissionResult(allowed=True, object=obj, warnings=[warning]), [])
        result = self._offline.decide(self._offline.request(obj))
        if not result.allowed:
            return _Verdict(file, document, result, [])
        later = [cause.message for cause in unserved.check(kind, obj)]
        result = replace(result, warnings=[*result.warnings, *later])
        return _Verdict(file, document, result, self._plan(obj))

    def _plan(self, obj: dict[str, Any]) -> list[Any]:
        if self._hypervisor is None:
            return []
        from anyvisor.cli.planned import findings

        return findings(obj, self._hypervisor, self._offline)


def _context(file: str | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        given = json.loads(_read_file(file, 16 << 20))
    except OSError as error:
        raise CommandError(f"--context {file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"--context {file}: it is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise CommandError(f'--context {file}: it must be an object with "architecture" and "configuration"')
    fields = cast(dict[str, Any], given)
    if not isinstance(fields.get("configuration") or {}, dict) or not isinstance(fields.get("architecture") or "", str):
        raise CommandError(f"--context {file}: architecture must be a text and configuration an object")
    return fields


def _show_json(verdict: _Verdict) -> None:
    result = verdict.result
    line: dict[str, Any] = {
        "allowed": result.allowed,
        "causes": [{"field": c.field, "type": c.type, "message": c.message} for c in result.causes],
        "warnings": list(result.warnings),
        "defaulted": result.object,
    }
    if not result.allowed and not result.causes:
        line["message"] = result.message
    if verdict.findings:
        line["plan"] = [
            {
                "severity": f.severity,
                "code": f.code,
                "field": f.field,
                "message": f.message,
                "remedies": list(f.remedies),
            }
            for f in verdict.findings
        ]
    print(json.dumps(line, ensure_ascii=True))


def _show_text(verdict: _Verdict) -> None:
    for line in _lines(verdict):
        # What a manifest says must not reach the terminal as a command to it.
        print("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))


def _lines(verdict: _Verdict) -> Iterator[str]:
    result, document = verdict.result, verdict.document

    def place(path: str) -> str:
        return f"{verdict.file}:{document.line_of(path)}"

    yield f"{place('')}: {verdict.name}: {'allowed' if result.allowed else 'refused'}"
    for cause in result.causes[:_MAX_SHOWN]:
        yield f"  {place(cause.location)}: {cause.message}"
    if len(result.causes) > _MAX_SHOWN:
        yield f"  and {len(result.causes) - _MAX_SHOWN} more"
    if not result.allowed and not result.causes:
        yield f"  {place('')}: {result.message}"
    for warning in result.warnings:
        yield f"  {place(warning.partition(' ')[0].rstrip(':'))}: warning: {warning}"
    if verdict.findings:
        yield "  on this hypervisor:"
    for finding in verdict.findings:
        remedies = "".join(f"; {remedy}" for remedy in finding.remedies)
        yield f"    {place(finding.field)}: {finding.severity}: {finding.message}{remedies}"

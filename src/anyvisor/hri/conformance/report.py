"""What a run found, as data, JSON and JUnit."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from xml.etree import ElementTree as ET

from anyvisor.hri.conformance.bench import Figure
from anyvisor.hri.versions import MINOR


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """One check."""

    id: str
    level: int
    title: str
    outcome: Outcome
    message: str = ""
    """Why it failed or was skipped: what was done, expected and seen."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """One run."""

    driver: str
    driver_version: str
    vmm_name: str
    vmm_version: str
    manifest_digest: str
    hri_minor: int
    level: int
    results: list[Result] = field(default_factory=list[Result])
    hypervisor_class: str = ""
    """The class whose parameters the machines had; empty: none."""
    figures: list[Figure] = field(default_factory=list[Figure])
    """What a bench measured."""

    @property
    def failed(self) -> list[Result]:
        """The checks that failed."""
        return [result for result in self.results if result.outcome == Outcome.FAILED]

    @property
    def passed(self) -> bool:
        """Whether nothing failed, and something passed."""
        return not self.failed and any(result.outcome == Outcome.PASSED for result in self.results)


def as_json(report: Report) -> str:
    """The report with its own digest, which a manifest names as evidence (what differs from run to run, times
    and figures, is not part of the digest)."""
    data = asdict(report)
    proven = json.dumps(
        {
            **{name: value for name, value in data.items() if name not in ("results", "figures")},
            "results": [(result.id, result.outcome) for result in report.results],
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    data["suite"] = {"name": "anyvisor-conform", "hriMinor": MINOR}
    data["passed"] = report.passed
    data["digest"] = "sha256:" + hashlib.sha256(proven.encode()).hexdigest()
    return json.dumps(data, indent=2) + "\n"


def as_junit(report: Report) -> str:
    """JUnit XML."""
    suite = ET.Element(
        "testsuite",
        name=f"conform {report.driver or 'driver'} level {report.level}",
        tests=str(len(report.results)),
        failures=str(len(report.failed)),
        skipped=str(sum(result.outcome == Outcome.SKIPPED for result in report.results)),
        time=f"{sum(result.seconds for result in report.results):.3f}",
    )
    for result in report.results:
        case = ET.SubElement(
            suite, "testcase", classname=f"level{result.level}", name=result.id, time=f"{result.seconds:.3f}"
        )
        if result.outcome == Outcome.FAILED:
            ET.SubElement(case, "failure", message=_printable(result.message))
        elif result.outcome == Outcome.SKIPPED:
            ET.SubElement(case, "skipped", message=_printable(result.message))
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _printable(text: str) -> str:
    """XML has no control characters, and a driver's message may."""
    return "".join(char if char.isprintable() else " " for char in text)

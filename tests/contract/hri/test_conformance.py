"""The conformance suite judges right: the fake driver passes, and each of its faults makes the right check fail."""

import json
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from anyvisor.hri import conformance
from anyvisor.hri.client import Deadlines
from anyvisor.hri.conformance import Options, Outcome, Report, runner
from anyvisor.hri.conformance.cases import CASES
from anyvisor.hri.fake import faults
from anyvisor.hri.fake.driver import FakeDriver
from anyvisor.hri.fake.faulty import FaultyCore
from anyvisor.hri.kit.server import DriverServer
from anyvisor.planning.manifest import parse
from anyvisor.planning.registry import registry


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "DEADLINES", Deadlines(quick=2, plan=2, accept=2, destroy=2))


async def judge(rundir: Path, ordered: str, *only: str) -> Report:
    driver = FakeDriver(faults.parse(ordered))
    hri, fd = rundir / "hri", rundir / "fd"
    async with DriverServer(driver, hri, fd, core=FaultyCore(driver)):
        options = Options(
            str(hri),
            str(fd),
            level=5,
            only=only,
            manifest_digest=driver.info.manifest_digest,
            manifest=parse(driver.manifest, registry()),
        )
        return await conformance.run(options)


async def test_the_fake_driver_conforms(rundir: Path):
    report = await judge(rundir, "")
    assert [(r.id, r.message) for r in report.failed] == []
    assert report.passed
    judged = [result for result in report.results if result.level in (0, 3, 5)]
    assert {r.outcome for r in judged} == {Outcome.PASSED}
    assert {r.outcome for r in report.results if r not in judged} == {Outcome.SKIPPED}  # those that boot a guest
    assert report.driver == "fake.anyvisor.io"


def test_every_test_that_the_registry_names_is_a_check():
    checks = {entry.id for entry in runner.CHECKS}
    assert sorted({test for capability in registry() for test in capability.tests} - checks) == []


def test_a_capability_that_a_machine_asks_for_has_a_case_or_says_why_not():
    tried = {case.capability for case in CASES}
    untried = {test for capability in registry() if capability.id in tried for test in capability.tests}
    assert "claims.honoured" in untried
    assert {case.capability for case in CASES} <= {capability.id for capability in registry()}


FOUND = [
    ("lie=echo", "contract.echo"),
    ("lie=state", "books.stop"),
    ("lie=info", "identity.stable"),
    ("lie=launch", "contract.launch-plan"),
    ("lie=claims", "claims.refused"),
    ("lie=echo", "claims.echo"),
    ("lie=profile", "services.snapshot"),
    ("lie=profile", "move.claim"),
    ("lie=apply", "change.disk.attach"),
    ("lie=apply", "change.nic.attach"),
    ("lie=apply", "change.memory"),
    ("lie=apply", "change.cpu"),
    ("lie=apply", "change.device"),
    ("flaky=apply:1", "change.nic.link"),
    ("leak", "hygiene.leaks"),
    ("leak", "contract.destroy"),
    ("gaps=2", "events.sequence"),
    ("amnesia", "contract.replay"),
    ("amnesia", "contract.conflict"),
    ("stale", "contract.generation"),
    ("skips", "contract.unknown-field"),
    ("skips", "contract.unknown-value"),
    ("slow=prepare:5", "contract.prepare"),
    ("hang=prepare", "contract.prepare"),
    ("flaky=prepare:1", "contract.prepare"),
    ("slow=probe:5", "identity.probe"),
    ("slow=start:3", "books.run"),
    ("minor=9", "identity.info"),
    ("minor=0", "identity.info"),
    ("minor=5-9", "identity.info"),
    ("hang=info", "identity.info"),
    ("hang=probe", "identity.probe"),
    ("hang=watch", "events.sequence"),
    ("lie=phase", "books.run"),
]


@pytest.mark.parametrize(("ordered", "failing"), FOUND)
async def test_each_fault_is_found(rundir: Path, ordered: str, failing: str):
    report = await judge(rundir, ordered, failing)
    assert [r.id for r in report.failed] == [failing]
    assert report.failed[0].message
    assert not report.passed


def test_every_knob_makes_a_check_fail():
    tried = {ordered.partition("=")[0] for ordered, _ in FOUND}
    knobs = {field.name for field in fields(faults.Faults)} - {"lies"} | {"lie"}
    assert knobs - tried == {"crash", "flood"}  # a driver that dies is tried below; many events break no rule
    assert {ordered.removeprefix("lie=") for ordered, _ in FOUND if ordered.startswith("lie=")} == faults.LIES


async def test_many_events_break_no_rule(rundir: Path):
    report = await judge(rundir, "flood=500", "books.run", "events.sequence")
    assert report.failed == []


async def test_a_driver_that_is_not_there(rundir: Path):
    report = await conformance.run(Options(str(rundir / "none")))
    assert [r.id for r in report.failed] == ["identity.info"]
    assert {r.outcome for r in report.results[1:]} == {Outcome.SKIPPED}
    assert not report.passed


async def test_a_driver_that_dies_in_a_call(rundir: Path):
    import asyncio
    import sys

    hri, fd = rundir / "hri", rundir / "fd"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anyvisor.hri.fake", "--hri", str(hri), "--fd", str(fd), "--faults", "crash=prepare"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    report = await conformance.run(Options(str(hri), str(fd), only=("contract.prepare", "contract.once")))
    assert [r.id for r in report.failed] == ["contract.prepare", "contract.once"]
    assert "cannot be reached" in report.failed[1].message
    assert await process.wait() == 70


async def test_the_digest_of_another_manifest_is_found(rundir: Path):
    driver = FakeDriver()
    async with DriverServer(driver, rundir / "hri", rundir / "fd"):
        report = await conformance.run(
            Options(str(rundir / "hri"), manifest_digest="sha256:" + "0" * 64, only=("identity.manifest",))
        )
    assert [r.id for r in report.failed] == ["identity.manifest"]


async def test_reports_as_json_and_junit(rundir: Path):
    report = await judge(rundir, "leak", "contract.prepare", "contract.destroy")
    data = json.loads(conformance.as_json(report))
    assert (data["passed"], data["driver"], data["level"]) == (False, "fake.anyvisor.io", 5)
    assert {r["id"]: r["outcome"] for r in data["results"]} == {
        "identity.info": "passed",
        "identity.probe": "passed",
        "node.facts": "passed",
        "contract.prepare": "passed",
        "contract.destroy": "failed",
    }
    again = await judge(rundir, "leak", "contract.prepare", "contract.destroy")
    assert json.loads(conformance.as_json(again))["digest"] == data["digest"]
    suite = ET.fromstring(conformance.as_junit(report))
    assert (suite.get("tests"), suite.get("failures")) == ("5", "1")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["contract.destroy"]


FIGURES = {
    *("bench.call", "bench.prepare", "bench.plans", "bench.driver-memory", "bench.machine-memory"),
    "bench.machine",  # the fake driver boots nothing, which is said
}


async def test_a_bench_measures_and_says_what_it_cannot(rundir: Path):
    driver = FakeDriver()
    async with DriverServer(driver, rundir / "hri", rundir / "fd"):
        options = Options(str(rundir / "hri"), str(rundir / "fd"), only=("identity.info",), bench=True)
        report = await conformance.run(options)
    found = {figure.id: figure for figure in report.figures}
    assert set(found) == FIGURES
    assert found["bench.machine"].value is None
    assert "nothing to boot was given" in found["bench.machine"].note
    assert all(figure.value is not None for name, figure in found.items() if name != "bench.machine")
    assert (found["bench.call"].value or 0) > 0
    assert not driver.guests
    told = json.loads(conformance.as_json(report))
    assert {figure["id"] for figure in told["figures"]} == FIGURES
    bare = await conformance.run(Options(str(rundir / "none")))
    assert json.loads(conformance.as_json(bare))["figures"] == []


def test_the_command_prints_a_line_per_check_and_fails_with_the_driver(
    rundir: Path, capsys: pytest.CaptureFixture[str]
):
    from anyvisor.cli.main import main

    assert main(["conform", "--endpoint", f"unix://{rundir}/none", "-o", "text"]) == 1
    output = capsys.readouterr().out
    assert output.startswith("FAILED   identity.info")
    assert "does not conform to HRI v1.1 level 0" in output
    assert main(["conform", "--endpoint", "tcp://1.2.3.4"]) == 1
    assert "is no unix socket" in capsys.readouterr().err

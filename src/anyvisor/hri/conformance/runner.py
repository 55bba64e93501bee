"""Running the checks, one after another, each within its time."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from anyvisor.hri.client import HriClient
from anyvisor.hri.conformance import (
    bench,
    books,
    change,
    claims,
    contract,
    descriptors,
    events,
    guests,
    identity,
    machine,
    overhead,
    protect,
    services,
)
from anyvisor.hri.conformance.process import driver_process
from anyvisor.hri.conformance.registry import Entry
from anyvisor.hri.conformance.report import Outcome, Report, Result
from anyvisor.hri.conformance.session import (
    DEADLINES,
    CheckFailedError,
    CheckSkippedError,
    Files,
    Session,
    small_machine,
)
from anyvisor.hri.errors import HriError
from anyvisor.hri.v1.machine_spec_pb2 import Machine
from anyvisor.planning.manifest import Manifest

CHECK_SECONDS = 180.0
FIRST = "identity.info"
BASIS = frozenset({FIRST, "identity.probe", "node.facts"})
"""What the other checks judge by: who the driver is, whether it is ready, what this host takes from its claims."""
NO_FILES = Files()
CHECKS: tuple[Entry, ...] = (
    *identity.CHECKS,
    *contract.CHECKS,
    *claims.CHECKS,
    *services.CHECKS,
    *events.CHECKS,
    *descriptors.CHECKS,
    *books.CHECKS,
    *guests.CHECKS,
    *machine.CHECKS,
    *change.CHECKS,
    *overhead.CHECKS,
    *protect.CHECKS,
)
"""In the order in which they run: what must work before the next can be judged."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to check."""

    hri_socket: str
    fd_socket: str | None = None
    level: int = 0
    machine: Machine | None = None
    """The shape to plan; a small one with a kernel when absent."""
    manifest_digest: str = ""
    manifest: Manifest | None = None
    """What the driver claims: both ways are tried."""
    talking: Files = NO_FILES
    """What to boot at level 1."""
    talks: bool = False
    """Whether that guest goes on talking by itself, so that silence means something."""
    reporting: Files | None = None
    """What to boot from level 2 on."""
    driver_command: str = ""
    """Start the driver by this command, with {hri} and {fd} in it; else it runs already."""
    only: tuple[str, ...] = ()
    """Ids to run, with those that others stand on; empty = all."""
    skip: tuple[str, ...] = ()
    """Ids not to run."""
    hypervisor_class: str = ""
    """The class of which `machine` has the parameters, for the report."""
    bench: bool = False
    """Measure, after the checks."""


async def run(options: Options, heard: Callable[[Result], None] = lambda _result: None) -> Report:
    """Run all checks up to the level. `heard` is told of each result as it comes."""
    results: list[Result] = []
    async with AsyncExitStack() as stack:
        driver = None
        if options.driver_command:
            fd_socket = options.fd_socket or ""
            driver = await stack.enter_async_context(
                driver_process(options.driver_command, options.hri_socket, fd_socket)
            )
        client = await stack.enter_async_context(HriClient(options.hri_socket, options.fd_socket, deadlines=DEADLINES))
        session = Session(
            stack=await stack.enter_async_context(AsyncExitStack()),
            hri_socket=options.hri_socket,
            fd_socket=options.fd_socket,
            client=client,
            machine=options.machine or small_machine(),
            manifest_digest=options.manifest_digest,
            manifest=options.manifest,
            talking=options.talking,
            talks=options.talks,
            reporting=options.reporting,
            driver=driver,
        )
        for entry in _chosen(options):
            if results and results[0].outcome == Outcome.FAILED:
                result = _result(entry, Outcome.SKIPPED, f"{FIRST} failed", 0.0)
            else:
                result = await _one(entry, session)
            results.append(result)
            heard(result)
        figures = await bench.run(session) if options.bench else []
        info = session.info
    return Report(
        driver=info.driver,
        driver_version=info.version,
        vmm_name=info.vmm_name,
        vmm_version=info.vmm_version,
        manifest_digest=info.manifest_digest,
        hri_minor=client.minor,
        level=options.level,
        results=results,
        hypervisor_class=options.hypervisor_class,
        figures=figures,
    )


def _chosen(options: Options) -> list[Entry]:
    entries = [entry for entry in CHECKS if entry.level <= options.level]
    if options.only:
        entries = [entry for entry in entries if entry.id in {*BASIS, *options.only}]
    entries = [entry for entry in entries if entry.id not in options.skip]
    return sorted(entries, key=lambda entry: entry.level)


async def _one(entry: Entry, session: Session) -> Result:
    begin = time.perf_counter()
    outcome, message = Outcome.PASSED, ""
    session.notes.clear()
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await entry.run(session)
        message = "; ".join(session.notes)
    except CheckSkippedError as skipped:
        outcome, message = Outcome.SKIPPED, str(skipped)
    except CheckFailedError as failed:
        outcome, message = Outcome.FAILED, str(failed)
    except HriError as error:
        outcome, message = Outcome.FAILED, f"a call that must succeed ended as {error.status}: {error.message}"
    except TimeoutError:
        outcome, message = Outcome.FAILED, "it did not end in time"
    except Exception as error:  # noqa: BLE001 - whatever a driver provokes is a failed check, not the suite's end
        outcome, message = Outcome.FAILED, f"{type(error).__name__}: {error}"
    return _result(entry, outcome, message, time.perf_counter() - begin)


def _result(entry: Entry, outcome: Outcome, message: str, seconds: float) -> Result:
    return Result(entry.id, entry.level, entry.title, outcome, message, round(seconds, 4))

"""Parts of the suite that act on a VMM: changes that nobody can see, and a fault that a program takes for itself."""

import asyncio
import signal
import subprocess
import sys
from typing import Any, cast

import pytest

from anyvisor.hri.conformance.cases import Basis
from anyvisor.hri.conformance.cgroup import name_for
from anyvisor.hri.conformance.launcher import Launcher
from anyvisor.hri.conformance.materials import Materials
from anyvisor.hri.conformance.protect import fault
from anyvisor.hri.conformance.running import Running
from anyvisor.hri.conformance.session import CheckFailedError, CheckSkippedError, Session
from anyvisor.hri.conformance.target import Target
from anyvisor.hri.errors import DeadlineExceeded, HriError, Refused
from anyvisor.hri.v1.machine_pb2 import ApplyRequest
from anyvisor.hri.v1.machine_spec_pb2 import Machine


class Answering(Target):
    """A target whose changes all end with one error."""

    error: HriError

    async def attempt(self, change: ApplyRequest, handles: Any = None) -> None:
        raise self.error


class Silent:
    """A VMM that says nothing, as far as messages name it."""

    def errors(self) -> str:
        return "nothing"


class Said:
    """A machine with it."""

    launcher = Silent()


def target(error: HriError, unseen: str) -> Answering:
    nothing: Any = None
    running = cast("Running", Said())
    made = Answering(cast("Session", nothing), Machine(), cast("Materials", nothing), Basis(), running, unseen)
    made.error = error
    return made


CHANGE = ApplyRequest(detach_disk="one")


async def test_a_change_that_no_guest_can_tell_of_is_skipped_with_both_reasons() -> None:
    unseen = target(Refused("no"), "no guest runs here")
    with pytest.raises(CheckSkippedError, match="the VMM has done it, and its guest cannot tell: no guest runs here"):
        await unseen.sees(lambda _: True, "a disk was attached")


@pytest.mark.parametrize(
    ("error", "unseen", "outcome"),
    [
        (Refused("no"), "no guest runs here", CheckFailedError),
        (Refused("no"), "", CheckFailedError),
        (DeadlineExceeded("it has not let go"), "no guest runs here", CheckSkippedError),
        (DeadlineExceeded("it has not let go"), "", CheckFailedError),
    ],
)
async def test_a_driver_that_refuses_fails_and_a_small_guest_that_does_not_help_does_not(
    error: HriError, unseen: str, outcome: type[Exception]
) -> None:
    with pytest.raises(outcome, match=error.message):
        await target(error, unseen).apply(CHANGE)


NO_CORE = "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"


class Program:
    """A process in a session of its own, as a launcher knows it."""

    def __init__(self, words: str) -> None:
        command = [
            sys.executable,
            "-c",
            f"import resource, signal, time\n{NO_CORE}\n{words}\nprint(flush=True)\ntime.sleep(600)",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.pid = self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    async def ended(self, seconds: float) -> bool:
        try:
            await asyncio.to_thread(self.process.wait, seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


TAKES_ONE = "signal.signal(signal.SIGSEGV, lambda *_: signal.signal(signal.SIGSEGV, signal.SIG_DFL))"


@pytest.mark.parametrize("words", ["", TAKES_ONE], ids=["plain", "takes the first"])
async def test_a_fault_ends_also_a_program_that_takes_the_first(words: str) -> None:
    program = Program(words)
    try:
        await fault(cast("Launcher", program))
        assert program.process.wait(30) == -signal.SIGSEGV
    finally:
        program.process.kill()
        program.process.communicate()


def test_control_groups_of_one_run_have_names_of_their_own() -> None:
    assert name_for("standing") != name_for("standing")

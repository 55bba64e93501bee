"""How long the short commands take, beside a Python that does nothing: the aim is 60 ms on an idle machine."""

import subprocess
import sys
import time

from tests.bench.measure import milliseconds, report, row
from tests.e2e.conftest import BIN, end, make_instance

RUNS = 20
COMMANDS = ("list", "list -o json", "status", "nodes", "why gone", "start gone", "version")


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    return milliseconds(start)


def test_short_commands() -> None:
    instance = make_instance()
    instance.up()
    try:
        program = [str(BIN / "anyvisor"), "--data-dir", str(instance.data_dir)]
        lines = [row("python -c pass", [timed([sys.executable, "-c", "pass"]) for _ in range(RUNS)])]
        lines += [
            row(f"anyvisor {words}", [timed([*program, *words.split()]) for _ in range(RUNS)]) for words in COMMANDS
        ]
        report("short commands of the command line (aim: 60 ms)", lines)
    finally:
        end(instance)

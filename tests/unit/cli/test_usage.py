"""The first thing a user meets: the help, and the answer to a command that there is not."""

import importlib
import os
import subprocess
import sys

import pytest

from anyvisor.cli.main import COMMANDS, EXIT_USAGE, GROUPS, main, module_of


def test_every_command_is_in_the_help_once_and_has_a_module(capsys: pytest.CaptureFixture[str]):
    assert main(["--help"]) == 0
    lines = [line.split("  ")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    for name in COMMANDS:
        assert lines.count(name) == 1, name
        assert importlib.import_module(f"anyvisor.cli.{module_of(name)}")
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)


@pytest.mark.parametrize(
    ("word", "advice"), [("lst", "did you mean `anyvisor list`?"), ("xyzzy", "see `anyvisor --help`")]
)
def test_an_unknown_command_is_answered_with_the_next_step(word: str, advice: str, capsys: pytest.CaptureFixture[str]):
    assert main([word]) == EXIT_USAGE
    assert capsys.readouterr().err == f"anyvisor: unknown command '{word}'; {advice}\n"


@pytest.mark.parametrize("command", ["list", "status", "nodes", "why", "start"])
def test_short_commands_import_little(command: str) -> None:
    """Each of these modules costs more than the request that the command is about."""
    heavy = {"dataclasses", "inspect", "msgspec", "asyncio", "yaml", "shutil", "rich", "encodings.idna"}
    words = [command, "gone"] if command in ("why", "start") else [command]
    script = (
        f"import sys; from anyvisor.cli.main import main; main({words!r}); print(sorted({heavy!r} & set(sys.modules)))"
    )
    environment = {**os.environ, "ANYVISOR_DATA_DIR": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_program_ends_with_the_commands_code_and_its_whole_output() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anyvisor", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.endswith("anyvisor console demo\n")
    program = [sys.executable, "-m", "anyvisor", "--data-dir", "/nowhere", "list"]
    failed = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
    assert failed.returncode == 1
    assert "anyvisor list: " in failed.stderr

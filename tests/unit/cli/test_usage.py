"""The first thing a user meets: the help, and the answer to a command that there is not."""

import importlib

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

"""The parser of every command's words."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import cast

_WIDTH = 80


class Parser(argparse.ArgumentParser):
    """Asks the terminal itself for its width, for which `argparse` loads a module at the first argument."""

    def _get_formatter(self) -> argparse.HelpFormatter:
        make = cast("Callable[..., argparse.HelpFormatter]", self.formatter_class)
        return make(prog=self.prog, width=_width() - 2)


def _width() -> int:
    """As `shutil.get_terminal_size` has it."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or _WIDTH if sys.__stdout__ else _WIDTH
    except (OSError, ValueError):
        return _WIDTH

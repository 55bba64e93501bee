"""A bar for long work, on a terminal only."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

Report = Callable[[int, int], None]
"""Told the bytes that are done, and of how many."""


@contextmanager
def bar(title: str) -> Generator[Report]:
    """Show the work's progress in bytes while the block runs; quietly nothing where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextmanager
def percentage(title: str) -> Generator[Callable[[str], None]]:
    """Show how far work is of which only a percentage is told; quietly nothing where nobody watches."""
    if not sys.stderr.isatty():
        yield lambda _percent: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(title, total=100.0)
        yield lambda percent: shown.update(task, completed=float(percent) if percent[:1].isdigit() else 0.0)


@contextmanager
def steps(title: str) -> Generator[Callable[[str], None]]:
    """Show which step the work is at; without a terminal, one line a step."""
    if not sys.stderr.isatty():
        yield lambda step: print(f"{title}: {step}", file=sys.stderr, flush=True)
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as shown:
        yield lambda step: shown.update(f"{title}: {step}")

"""Plain tables, as kubectl prints them."""

from collections.abc import Iterable, Sequence


def show(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns, three spaces apart."""
    lines = [tuple(header), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        print("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

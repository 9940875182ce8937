"""Formats tables for people: columns of text, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence

from squall.engine.foreign.plain_text import plain


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format lines of aligned columns, columns of numbers to the right. Each row is one line."""
    heads = [plain(cell) for cell in head]
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [heads, *texts]) for column in range(len(head))]
    right = [all(isinstance(row[column], int | float | None) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at_right else cell.ljust(width)
            for cell, width, at_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [heads, *texts]
    )


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.2f}" if isinstance(cell, float) else plain(cell)

"""Tables for people: exact in a file or a pipe, cut to the window and coloured on a terminal.

Guarantees: each row is one line, columns of numbers are to the right. `fitted` keeps within a width: it shortens big
numbers to four digits, then the texts of the widest columns: their middle is left out, or the end in the last column,
which may be a list. Rich is imported for that alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from squall.engine.foreign.plain_text import plain

_LEAST_CHARS = 8
"""No column of text is cut to less: pids stay whole."""
_EXACT_BELOW = 10_000_000
_UNITS = (("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15), ("E", 1e18))


class Cell(NamedTuple):
    """A value with a style of Rich, such as "red"."""

    value: object
    style: str = ""
    shown: str = ""
    """The text, if it is not the usual one of the value."""


def plain_number(number: int | None) -> Cell:
    """A number that names something, such as a pid: without commas, and never shortened."""
    return Cell(number, shown="" if number is None else str(number))


def millis(ms: float | None) -> Cell:
    """Milliseconds, to a tenth of a microsecond."""
    return Cell(ms, shown="" if ms is None else f"{ms:,.4f}")


class Grid:
    """A table that is not laid out yet."""

    def __init__(
        self, head: Sequence[str], rows: Sequence[Sequence[object]], left_out: int = 0, whole: Collection[int] = ()
    ) -> None:
        """`left_out`: rows that there are besides, of which only the number is shown; `whole`: columns of text that
        are never cut, because people copy them."""
        self.left_out, self.whole = left_out, frozenset(whole)
        self.head = [plain(cell) for cell in head]
        self.rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        columns = range(len(head))
        self.right = [all(isinstance(row[at].value, int | float | None) for row in self.rows) for at in columns]

    def __str__(self) -> str:
        """The whole table as plain text."""
        texts = [[cell.shown or _text(cell.value) for cell in row] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(self.head, *texts, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if at_right else cell.ljust(width)
                for cell, width, at_right in zip(line, widths, self.right, strict=True)
            ).rstrip()
            for line in [self.head, *texts]
        ) + (f"\n{self.more}" if self.more else "")

    @property
    def more(self) -> str:
        return f"... and {self.left_out:,} more" if self.left_out else ""

    def cut_to(self, count: int) -> Grid:
        """Of so many rows; those with an alarming style first."""
        rows = sorted(self.rows, key=lambda row: all(cell.style in ("", "green") for cell in row))
        if count >= len(rows):
            return self
        return Grid(self.head, rows[:count], self.left_out + len(rows) - count, self.whole)

    def fitted(self, width: int, gap: int) -> list[list[str]]:
        """Head and rows as texts, each column as wide as its widest, within `width` if that is possible at all."""
        from rich.cells import cell_len

        lines = [self.head, *([cell.shown or _short(cell.value) for cell in row] for row in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        excess = sum(widths) + gap * (len(widths) - 1) - width
        texts = [at for at, right in enumerate(self.right) if not right and at not in self.whole]
        while excess > 0:
            widest = max(texts, key=widths.__getitem__, default=None)
            if widest is None or widths[widest] <= _LEAST_CHARS:
                break
            widths[widest] -= 1
            excess -= 1
        last = len(widths) - 1
        return [
            [_cut(cell, widths[at], at == last, cell_len) for at, cell in enumerate(line)] for line in lines
        ]


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a whole table as plain text."""
    return str(Grid(head, rows))


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.2f}" if isinstance(cell, float) else plain(cell)


def _short(cell: object) -> str:
    """As `_text`, but big numbers with four digits: "12.35M"."""
    if not isinstance(cell, int | float) or not cell >= _EXACT_BELOW or math.isinf(cell):
        return _text(cell)
    unit, size = next(((unit, size) for unit, size in _UNITS if cell < size * 1000), _UNITS[-1])
    return f"{cell / size:.4g}{unit}"


def _cut(text: str, cells: int, at_end: bool, cell_len: Callable[[str], int]) -> str:
    """The beginning of a text that takes too many cells, and its end unless `at_end`; some characters take two."""
    if cell_len(text) <= cells:
        return text
    front, back = "", ""
    front_cells = cells - 1 if at_end else cells // 2
    while text and cell_len(front) + cell_len(text[0]) <= front_cells:
        front, text = front + text[0], text[1:]
    while text and not at_end and cell_len(back) + cell_len(text[-1]) <= cells - 1 - cell_len(front):
        back, text = text[-1] + back, text[:-1]
    return f"{front}…{back}"

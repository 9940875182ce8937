"""Shows lines and tables to people: whole in a file or a pipe; on a terminal by Rich, in colour and within its width.

Guarantees: each text is made plain here, whatever it holds: one line, no markup, no control character. In a table each
row is one line in a pipe. On a terminal texts are folded, and numbers are not cut as long as there is room for them:
counts are shortened ("1.2 G") where texts would be left fewer than 12 letters a line.
Rich, which takes a while to import, is imported for a terminal only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from squall.cli.output import TAB, closed_pipe_is_no_error, note, say, say_json
from squall.engine.foreign.text import plain, short
from squall.ipc.private import naming

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group
    from rich.table import Table

STATE_STYLES = {
    "ACTIVE": "green", "FINISHED": "cyan", "INACTIVE": "yellow", "REBALANCING": "yellow", "KILLED": "yellow",
    "ready": "green", "FAILED": "bold red", "STOPPED": "bold red", "dead": "bold red",
}
SCREEN_INTERVAL_SECS, LINE_INTERVAL_SECS = 1.0, 5.0
"""Between two looks at something that changes: what eyes can follow, and what a log can hold."""


class Cell(NamedTuple):
    """A value with a style of Rich, such as "red"; or a block of lines with a style."""

    value: object
    style: str = ""
    shown: str = ""
    """The text, if it is not the usual one of the value."""

    def __str__(self) -> str:
        if self.shown or self.value is None:
            return self.shown or "-"
        if isinstance(self.value, int):
            return f"{self.value:,}"
        return f"{self.value:,.2f}" if isinstance(self.value, float) else plain(self.value)

    def short(self) -> Cell:
        """The same, with a count as "1.2 G"."""
        return self._replace(shown=short(self.value)) if isinstance(self.value, int) and not self.shown else self


class Grid:
    """A table. `whole`: columns of text that are never folded, because people copy them."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[object]], whole: Collection[int] = ()) -> None:
        self._head = [plain(cell) for cell in head]
        self._rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        self._whole = whole
        values = zip(*([cell.value for cell in row] for row in self._rows), strict=True)
        right = [all(isinstance(value, int | float | None) for value in column) for column in values]
        self._right = right or [False] * len(head)
        self._texts = [self._head, *([str(cell) for cell in row] for row in self._rows)]
        self._widths = [max(map(len, column)) for column in zip(*self._texts, strict=True)]

    def __str__(self) -> str:
        """The whole table as plain text."""
        return "\n".join(
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, self._widths, self._right, strict=True)
            ).rstrip()
            for line in self._texts
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        kept = [right or at in self._whole for at, right in enumerate(self._right)]
        # Three counts of 10 digits left a component 4 letters a line in a window of 80.
        least = sum(width if whole else min(width, 12) for width, whole in zip(self._widths, kept, strict=True))
        tight = least + len(kept) - 1 > options.max_width
        for name, right, whole in zip(self._head, self._right, kept, strict=True):
            table.add_column(Text(name), justify="right" if right else "left", no_wrap=whole, overflow="fold")
        for row in self._rows:
            table.add_row(*(Text(str(cell.short() if tight else cell), cell.style) for cell in row))
        yield table


Block = str | Sequence[str] | Grid | Cell
"""A line, several, a table, or lines with a style."""


def state_cell(state: str) -> Cell:
    """A state of a topology or a worker, in its colour."""
    return Cell(state, STATE_STYLES.get(state, "yellow"))


def alarm_cell(count: int | None) -> Cell:
    """A count that should be 0."""
    return Cell(count, "red" if count else "")


def plain_number(number: int | None) -> Cell:
    """A number that names something, such as a pid: without commas."""
    return Cell(number, shown="" if number is None else str(number))


def millis(ms: float | None) -> Cell:
    """Milliseconds, to a tenth of a microsecond."""
    return Cell(ms, shown="" if ms is None else f"{ms:,.4f}")


def is_terminal(stream: TextIO | None) -> bool:
    """Return True if this stream is a terminal on which text can be placed and coloured."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def show(as_json: bool, document: Any, blocks: Block | Sequence[Block]) -> None:
    """Print the outcome of a command on stdout: the document, or the blocks with an empty line between two of them."""
    with closed_pipe_is_no_error():
        if as_json:
            say_json(document)
        else:
            print_blocks([blocks] if isinstance(blocks, str | Grid | Cell) else blocks)


def print_blocks(blocks: Sequence[Block]) -> None:
    """Print on stdout, with an empty line between two blocks."""
    if is_terminal(sys.stdout):
        with naming("stdout"):
            _console(sys.stdout).print(_rendered(blocks))
        return
    parts = [str(block).split("\n") if isinstance(block, Grid) else _lines(block) for block in blocks]
    say(*(line for at, part in enumerate(parts) for line in ([""] if at else []) + part))


class Screen:
    """What changes: a part of a terminal that is drawn anew; elsewhere one more line on stderr."""

    def __init__(self, stream: TextIO | None) -> None:
        self._live = None
        if stream is not None and is_terminal(stream):
            from rich.live import Live

            self._live = Live(
                console=_console(stream), auto_refresh=False, transient=True, vertical_overflow="ellipsis"
            )
            self._live.start()

    def show(self, name: str, line: str) -> None:
        """Show a state: on a terminal with the name of what it is of."""
        if self._live is None:
            note(line)
        else:
            self._live.update(_rendered([f"{name} {line}"]), refresh=True)

    def tell(self, line: str, style: str = "") -> None:
        """Print a line, above the state."""
        if self._live is None:
            note(line)
        else:
            self._live.console.print(_rendered([Cell(line, style)]))

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(file=stream, markup=False, emoji=False, highlight=False)


def _rendered(blocks: Sequence[Block]) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Text | Grid] = []
    for block in blocks:
        style = block.style if isinstance(block, Cell) else ""
        text = [block] if isinstance(block, Grid) else [Text(line, style, overflow="fold") for line in _lines(block)]
        parts += [*([Text()] if parts else []), *text]
    return Group(*parts)


def _lines(block: str | Sequence[str] | Cell) -> list[str]:
    """The lines of a block, made plain."""
    lines: Any = block.value if isinstance(block, Cell) else block
    return [plain(line, keep=TAB) for line in ([lines] if isinstance(lines, str) else lines)]

"""Shows blocks of text and tables to people: plainly in a file or a pipe; on a terminal in colour, and in its width.

Guarantees: what is shown in a file or a pipe is complete, and does not depend on any terminal. On a terminal no line of
a table is wider than the window (Rich's own tables would cut numbers). Rich, which takes a while to import, is
imported for a terminal only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from squall.cli.output import say
from squall.cli.tables import Cell, Grid
from squall.engine.foreign.plain_text import plain_lines

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Block = str | Grid | Cell
"""A text of one or more lines, a table, or a text with a style."""

STATE_STYLES = {
    "ACTIVE": "green", "FINISHED": "cyan", "INACTIVE": "yellow", "REBALANCING": "yellow", "KILLED": "yellow",
    "ready": "green", "FAILED": "bold red", "dead": "bold red",
}
SCREEN_INTERVAL_SECS, LINE_INTERVAL_SECS = 1.0, 5.0
"""Between two looks at something that changes: what eyes can follow, and what a log can hold."""
_GAP = 1
_LEAST_ROWS = 3


def state_cell(state: str) -> Cell:
    """A state of a topology or a worker, in its colour."""
    return Cell(state, STATE_STYLES.get(state, "yellow"))


def alarm_cell(count: int | None) -> Cell:
    """A count that should be 0."""
    return Cell(count, "red" if count else "")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether this stream is a terminal on which text can be placed and coloured."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


def interval_or_default(interval_secs: float | None, stream: TextIO | None) -> float:
    """The time between two looks: as the user said, or what suits the stream."""
    if interval_secs is not None:
        return interval_secs
    return SCREEN_INTERVAL_SECS if is_terminal(stream) else LINE_INTERVAL_SECS


def plain_text(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_plain(block) for block in blocks)


def print_blocks(blocks: Sequence[Block]) -> None:
    """Print on stdout, with an empty line between two blocks."""
    if not is_terminal(sys.stdout):
        say(plain_text(blocks))
        return
    from squall.cli.plain_console import PlainConsole

    console = PlainConsole()
    console.print(rendered(blocks, console.width), soft_wrap=False)


def rendered(blocks: Sequence[Block], width: int) -> RenderableType:
    """Blocks for a console of this width."""
    from rich.console import Group

    parts: list[Any] = []
    for block in blocks:
        parts += [*([""] if parts else []), _rendered(block, width)]
    return Group(*parts)


def lines_of(block: Block, width: int) -> int:
    """Lines that a block takes at this width."""
    if isinstance(block, Grid):
        return len(block.rows) + (2 if block.more else 1)
    return sum(-(-len(line) // width) or 1 for line in _plain(block).split("\n"))


def cut_to_window(blocks: Sequence[Block], width: int, height: int) -> list[Block]:
    """The blocks with fewer rows in the longest tables, so that they fit a window if that is possible."""
    cut = list(blocks)
    grids = [at for at, block in enumerate(cut) if isinstance(block, Grid)]
    while grids:
        excess = sum(lines_of(block, width) for block in cut) + len(cut) - 1 - height
        if excess <= 0:
            break
        longest = max(grids, key=lambda at: lines_of(cut[at], width))
        grid = cut[longest]
        assert isinstance(grid, Grid)
        # Not below the second longest at once: tables are cut to the same length.
        others = [lines_of(cut[at], width) for at in grids if at != longest]
        step = max(1, min(excess, lines_of(grid, width) - max(others, default=0)))
        rows = max(_LEAST_ROWS, len(grid.rows) - step - (not grid.more))
        if rows >= len(grid.rows):
            break
        cut[longest] = grid.cut_to(rows)
    return cut


def _plain(block: Block) -> str:
    return str(block.value) if isinstance(block, Cell) else str(block)


def _rendered(block: Block, width: int) -> Text:
    from rich.text import Text

    if isinstance(block, Grid):
        return _table(block, width)
    style = block.style if isinstance(block, Cell) else ""
    return Text(plain_lines(_plain(block)), style, no_wrap=False, overflow="fold")


def _table(grid: Grid, width: int) -> Text:
    from rich.cells import cell_len
    from rich.text import Text

    texts = grid.fitted(width, _GAP)
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    styles = [["bold"] * len(grid.head), *([cell.style for cell in row] for row in grid.rows)]
    lines = []
    for line, line_styles in zip(texts, styles, strict=True):
        text = Text(no_wrap=True, overflow="crop")
        for at, (cell, style) in enumerate(zip(line, line_styles, strict=True)):
            blanks = " " * (widths[at] - cell_len(cell))
            text.append(blanks + cell if grid.right[at] else cell + blanks, style)
            text.append(" " * _GAP if at + 1 < len(line) else "")
        text.rstrip()
        text.truncate(width, overflow="ellipsis")
        lines.append(text)
    if grid.more:
        lines.append(Text(grid.more, "dim"))
    return Text("\n").join(lines)
